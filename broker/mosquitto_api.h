/*
 * The part of Mosquitto's interface for plug-ins, version 5, that subscriptions.c uses.
 *
 * Written for EdgeFed from the interface's documentation, so that it builds without Mosquitto's headers.
 */
#ifndef EDGEFED_MOSQUITTO_API_H
#define EDGEFED_MOSQUITTO_API_H

#include <stdbool.h>
#include <stdint.h>

enum { INTERFACE_VERSION = 5 };
enum { ACL_SUBSCRIBE = 4 };
enum event { EVENT_ACL_CHECK = 2, EVENT_DISCONNECT = 10 };
enum result { DONE = 0, NO_MEMORY = 1, DENIED = 12, DEFERRED = 17, UNSUPPORTED = -1 };

struct mosquitto;           /* a client */
struct mosquitto_opt;       /* an option of the configuration */
struct mosquitto_plugin;    /* a plug-in, as the broker knows it */

struct acl_check {
    void *reserved;
    struct mosquitto *client;
    const char *topic;
    const void *payload;
    void *properties;
    int access;
    uint32_t payload_length;
    uint8_t qos;
    bool retain;
    void *more_reserved[4];
};

struct disconnect {
    void *reserved;
    struct mosquitto *client;
    int reason;
    void *more_reserved[4];
};

typedef int callback(int event, void *data, void *state);

/* Of the broker. */
int mosquitto_callback_register(struct mosquitto_plugin *, int, callback *, const void *, void *);
int mosquitto_callback_unregister(struct mosquitto_plugin *, int, callback *, const void *);
const char *mosquitto_client_username(const struct mosquitto *);
int mosquitto_client_sub_count(const struct mosquitto *);

/* Of every plug-in. */
int mosquitto_plugin_version(int, const int *);
int mosquitto_plugin_init(struct mosquitto_plugin *, void **, struct mosquitto_opt *, int);
int mosquitto_plugin_cleanup(void *, struct mosquitto_opt *, int);

#endif
