/*
 * A plug-in for Mosquitto that limits the subscriptions of everybody but the coordinator.
 *
 * An acl_file refuses no subscription, it only filters what is delivered. Mosquitto compares each new
 * subscription with all others of its client, and looks through all retained messages for a filter
 * such as "#": a few MB of SUBSCRIBE packets freeze it for seconds. This plug-in is asked before the
 * acl_file. It refuses filters that reach other parties' topics, and more of them than a connection
 * needs. What it does not refuse is left to the acl_file, as is everything but subscriptions.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "mosquitto_api.h"

#define EXPORT __attribute__((visibility("default")))

static const char COORDINATOR[] = "coordinator"; /* COORDINATOR_USER of edgefed.trust */

enum { MAX_FILTER_BYTES = 255 };

/* Of one connection at one time: a task names up to 256 blobs, each with up to four patches. */
enum { MAX_SUBSCRIPTIONS = 2048 };

/*
 * What a connection may spend on subscriptions. Those to the broadcast of a blob cost 1, since an
 * agent makes one for each blob that it lacks, and nothing is retained there. Others cost 32: 64 of
 * them at once, and 16 a second later. Clients need four, again with each connection.
 */
enum { BURST = 2048, TOKENS_PER_SECOND = 512, PRICE = 32, BROADCAST_PRICE = 1 };

enum { CHAINS = 1024 };

struct connection {
    const struct mosquitto *client;
    double tokens;
    double counted_at;
    struct connection *next;
};

struct plugin {
    struct mosquitto_plugin *identity;
    struct connection *chains[CHAINS];
};

/* Return what follows so many levels of a topic; NULL if there are fewer. */
static const char *after_levels(const char *topic, int levels)
{
    for (; topic != NULL && levels > 0; levels--) {
        topic = strchr(topic, '/');
        topic = topic == NULL ? NULL : topic + 1;
    }
    return topic;
}

static bool begins(const char *text, const char *prefix)
{
    return text != NULL && strncmp(text, prefix, strlen(prefix)) == 0;
}

/* Whether wildcards occur only below the user's own level, edgefed/FLEET/BRANCH/USER/, or below all/. */
static bool is_within_reach(const char *filter, const char *user)
{
    const char *wildcard = strpbrk(filter, "+#");
    const char *branch = after_levels(filter, 2);
    const char *own = after_levels(filter, 3);

    if (wildcard == NULL) {
        return true;
    }
    if (own == NULL || wildcard < own) {
        return false;
    }
    if (begins(branch, "all/")) {
        return true;
    }
    if (user == NULL || !begins(own, user)) {
        return false;
    }
    own += strlen(user);
    return *own == '/' && wildcard > own;
}

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Return where the connection of a client is, or belongs, in its chain. */
static struct connection **place_of(struct plugin *plugin, const struct mosquitto *client)
{
    struct connection **place = &plugin->chains[((uintptr_t)client >> 6) % CHAINS];

    while (*place != NULL && (*place)->client != client) {
        place = &(*place)->next;
    }
    return place;
}

/* Take the price of a subscription from what its connection has left; return whether it has as much. */
static bool pays(struct plugin *plugin, const struct mosquitto *client, double price)
{
    struct connection **place = place_of(plugin, client);
    struct connection *connection = *place;
    double time = now();

    if (connection == NULL) {
        connection = calloc(1, sizeof *connection);
        if (connection == NULL) {
            return false;
        }
        connection->client = client;
        connection->tokens = BURST;
        connection->counted_at = time;
        *place = connection;
    }
    connection->tokens += (time - connection->counted_at) * TOKENS_PER_SECOND;
    connection->counted_at = time;
    if (connection->tokens > BURST) {
        connection->tokens = BURST;
    }
    if (connection->tokens < price) {
        return false;
    }
    connection->tokens -= price;
    return true;
}

static int check_access(int event, void *data, void *state)
{
    const struct acl_check *check = data;
    const char *user = mosquitto_client_username(check->client);
    const char *filter = check->topic;
    bool is_broadcast;

    (void)event;
    if (check->access != ACL_SUBSCRIBE || (user != NULL && strcmp(user, COORDINATOR) == 0)) {
        return DEFERRED;
    }
    if (filter == NULL || filter[0] == '$' || strlen(filter) > MAX_FILTER_BYTES) {
        return DENIED;
    }
    if (!is_within_reach(filter, user)) {
        return DENIED;
    }
    if (mosquitto_client_sub_count(check->client) >= MAX_SUBSCRIPTIONS) {
        return DENIED;
    }
    is_broadcast = begins(after_levels(filter, 2), "all/c/");
    if (!pays(state, check->client, is_broadcast ? BROADCAST_PRICE : PRICE)) {
        return DENIED;
    }
    return DEFERRED;
}

static int forget_connection(int event, void *data, void *state)
{
    const struct disconnect *disconnect = data;
    struct connection **place = place_of(state, disconnect->client);
    struct connection *connection = *place;

    (void)event;
    if (connection != NULL) {
        *place = connection->next;
        free(connection);
    }
    return DONE;
}

EXPORT int mosquitto_plugin_version(int count, const int *versions)
{
    for (int i = 0; i < count; i++) {
        if (versions[i] == INTERFACE_VERSION) {
            return INTERFACE_VERSION;
        }
    }
    return UNSUPPORTED;
}

EXPORT int mosquitto_plugin_init(
    struct mosquitto_plugin *identity, void **state, struct mosquitto_opt *options, int count)
{
    struct plugin *plugin = calloc(1, sizeof *plugin);
    int result;

    (void)options;
    (void)count;
    if (plugin == NULL) {
        return NO_MEMORY;
    }
    plugin->identity = identity;
    *state = plugin;
    result = mosquitto_callback_register(identity, EVENT_ACL_CHECK, check_access, NULL, plugin);
    if (result != DONE) {
        return result;
    }
    return mosquitto_callback_register(
        identity, EVENT_DISCONNECT, forget_connection, NULL, plugin);
}

EXPORT int mosquitto_plugin_cleanup(void *state, struct mosquitto_opt *options, int count)
{
    struct plugin *plugin = state;

    (void)options;
    (void)count;
    if (plugin == NULL) {
        return DONE;
    }
    mosquitto_callback_unregister(plugin->identity, EVENT_ACL_CHECK, check_access, NULL);
    mosquitto_callback_unregister(plugin->identity, EVENT_DISCONNECT, forget_connection, NULL);
    for (int i = 0; i < CHAINS; i++) {
        while (plugin->chains[i] != NULL) {
            struct connection *connection = plugin->chains[i];
            plugin->chains[i] = connection->next;
            free(connection);
        }
    }
    free(plugin);
    return DONE;
}
