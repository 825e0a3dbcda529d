"""Topics: formatting and parsing; foreign topics are rejected."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefed.errors import WireError
from edgefed.wire.diagnostic_messages import DIAGNOSTIC_MESSAGES
from edgefed.wire.enrolment_messages import ENROLMENT_MESSAGES
from edgefed.wire.envelope import decode, encode
from edgefed.wire.messages import MESSAGES, Message
from edgefed.wire.rollout_messages import ROLLOUT_MESSAGES
from edgefed.wire.site_messages import SITE_MESSAGES, SumReply, SumRequest
from edgefed.wire.topics import CLIENT_SLOTS, TOPIC_SPECS, ParsedTopic, Topics
from edgefed.wire.update_messages import UPDATE_MESSAGES
from tests.wire.strategies import any_message, digests, messages, names

TOPICS = Topics("garden")
DIGEST = "0f" * 32

PARSED = {
    TOPICS.coordinator(): ParsedTopic("all", "", "coordinator"),
    TOPICS.broadcast_chunk(DIGEST): ParsedTopic("all", "", "c"),
    TOPICS.task("d-1"): ParsedTopic("down", "d-1", "task"),
    TOPICS.receipt("d-1"): ParsedTopic("down", "d-1", "receipt"),
    TOPICS.cancel("d-1"): ParsedTopic("down", "d-1", "cancel"),
    TOPICS.down_need("d-1"): ParsedTopic("down", "d-1", "need"),
    TOPICS.down_chunk("d-1"): ParsedTopic("down", "d-1", "c"),
    TOPICS.birth("d-1"): ParsedTopic("up", "d-1", "birth"),
    TOPICS.progress("d-1"): ParsedTopic("up", "d-1", "progress"),
    TOPICS.telemetry("d-1"): ParsedTopic("up", "d-1", "telemetry"),
    TOPICS.reply("d-1"): ParsedTopic("up", "d-1", "reply"),
    TOPICS.up_need("d-1"): ParsedTopic("up", "d-1", "need"),
    TOPICS.up_chunk("d-1"): ParsedTopic("up", "d-1", "c"),
    TOPICS.request("local/15"): ParsedTopic("control", "local/15", "request"),
    TOPICS.response("operator.al/0"): ParsedTopic("control", "operator.al/0", "response"),
    TOPICS.renewal("d-1"): ParsedTopic("up", "d-1", "renewal"),
    TOPICS.renewal_order("d-1"): ParsedTopic("down", "d-1", "renewal"),
    TOPICS.certificate("d-1"): ParsedTopic("down", "d-1", "certificate"),
    TOPICS.leave("d-1"): ParsedTopic("up", "d-1", "leave"),
    TOPICS.left("d-1"): ParsedTopic("down", "d-1", "leave"),
    TOPICS.ping("d-1"): ParsedTopic("down", "d-1", "ping"),
    TOPICS.pong("d-1"): ParsedTopic("up", "d-1", "ping"),
    TOPICS.log_request("d-1"): ParsedTopic("down", "d-1", "log"),
    TOPICS.log_tail("d-1"): ParsedTopic("up", "d-1", "log"),
    TOPICS.model_offer("d-1"): ParsedTopic("down", "d-1", "model"),
    TOPICS.model_answer("d-1"): ParsedTopic("up", "d-1", "model"),
    TOPICS.update_offer("d-1"): ParsedTopic("down", "d-1", "update"),
    TOPICS.update_state("d-1"): ParsedTopic("up", "d-1", "update"),
    TOPICS.down_site("d-1"): ParsedTopic("down", "d-1", "site"),
    TOPICS.up_site("d-1"): ParsedTopic("up", "d-1", "site"),
    TOPICS.gateway("d-1"): ParsedTopic("up", "d-1", "gateway"),
    TOPICS.enrolment_request("0a1b"): ParsedTopic("enrol", "0a1b", "request"),
    TOPICS.enrolment_response("0a1b"): ParsedTopic("enrol", "0a1b", "response"),
    TOPICS.events(): ParsedTopic("events", "", "events"),
}


def test_names_on_the_wire_do_not_drift() -> None:
    assert TOPICS.task("d-1") == "edgefed/garden/down/d-1/task"
    assert TOPICS.coordinator() == "edgefed/garden/all/coordinator"
    assert TOPICS.broadcast_chunk(DIGEST) == f"edgefed/garden/all/c/{DIGEST}"
    assert TOPICS.response("local/9") == "edgefed/garden/control/local/9/response"
    assert TOPICS.events() == "edgefed/garden/events"


@pytest.mark.parametrize("topic", PARSED)
def test_every_topic_means_its_place(topic: str) -> None:
    assert TOPICS.parse(topic) == PARSED[topic]


def test_every_lane_has_a_topic_and_every_message_a_lane() -> None:
    assert {(parsed.branch, parsed.leaf) for parsed in PARSED.values()} == set(TOPIC_SPECS)
    everything = {*MESSAGES, *ENROLMENT_MESSAGES, *DIAGNOSTIC_MESSAGES, *SITE_MESSAGES}
    everything |= {*ROLLOUT_MESSAGES, *UPDATE_MESSAGES}
    in_batches_only = {SumRequest, SumReply}
    assert {spec.message for spec in TOPIC_SPECS.values()} == everything - in_batches_only
    assert set(messages) == everything


def test_only_presence_is_retained_and_only_what_is_asked_again_may_be_lost() -> None:
    assert {key for key, spec in TOPIC_SPECS.items() if spec.retained} == {
        ("all", "coordinator"),
        ("up", "birth"),
        ("up", "gateway"),
    }
    diagnostics = {(branch, leaf) for branch in ("up", "down") for leaf in ("ping", "log")}
    harmless = {("up", "telemetry"), ("events", "events"), *diagnostics}
    assert {key for key, spec in TOPIC_SPECS.items() if spec.qos == 0} == harmless


@settings(max_examples=30, deadline=None)
@given(any_message, st.sampled_from(sorted(PARSED)))
def test_a_topic_takes_its_own_message_and_no_other(message: Message, topic: str) -> None:
    expected = PARSED[topic].spec.message
    if isinstance(message, expected):
        assert decode(encode(message), expected) == message
    else:
        with pytest.raises(WireError) as caught:
            decode(encode(message), expected)
        assert caught.value.code == "wire.kind"


@settings(max_examples=15, deadline=None)
@given(names, names, digests)
def test_topics_return_their_parts(fleet: str, device: str, digest: str) -> None:
    topics = Topics(fleet)
    assert topics.parse(topics.up_chunk(device)) == ParsedTopic("up", device, "c")
    assert topics.parse(topics.broadcast_chunk(digest)) == ParsedTopic("all", "", "c")


def test_a_gateway_and_a_device_send_different_messages() -> None:
    senders = {
        leaf: TOPIC_SPECS["up", leaf].senders for branch, leaf in TOPIC_SPECS if branch == "up"
    }
    both = ("device", "gateway")
    assert {leaf for leaf, roles in senders.items() if roles == ("gateway",)} == {"gateway", "site"}
    assert {leaf for leaf, roles in senders.items() if roles == both} == {
        "need",
        "renewal",
        "leave",
    }
    assert senders["birth"] == senders["reply"] == ("device",)


def test_a_party_writes_a_few_exact_topics() -> None:
    device, client = TOPICS.written_by_device("d-1"), TOPICS.written_by_client("viewer.vi")
    assert set(device) == {topic for topic, parsed in PARSED.items() if parsed.branch == "up"}
    assert TOPICS.request("viewer.vi/15") in client
    assert TOPICS.check("viewer.vi", 0) in client
    assert len(set(client)) == len(client) == 2 * CLIENT_SLOTS == 32
    assert not any(wild in topic for topic in (*device, *client) for wild in "+#")


@pytest.mark.parametrize(
    "topic",
    [
        "",
        "edgefed",
        "edgefed/garden",
        "edgefed/garden/",
        "edgefed/other/events",
        "edgefed/garden2/events",
        "x/edgefed/garden/events",
        "edgefed/garden/events/",
        "edgefed/garden/events/more",
        "edgefed/garden/all",
        "edgefed/garden/all/task",
        "edgefed/garden/all/coordinator/x",
        "edgefed/garden/all/c",
        f"edgefed/garden/all/c/{DIGEST}/",
        f"edgefed/garden/all/c/{DIGEST}/1",
        f"edgefed/garden/all/c/{DIGEST[:-1]}",
        f"edgefed/garden/all/c/{DIGEST.upper()}",
        f"edgefed/garden/all/c/{DIGEST}\n",
        f"edgefed/garden/up/d/c/{DIGEST}",
        f"edgefed/garden/down/d/c/{DIGEST}",
        "edgefed/garden/down/d/birth",
        "edgefed/garden/down//task",
        "edgefed/garden/down/D/task",
        "edgefed/garden/down/../task",
        "edgefed/garden/down/d\x00/task",
        "edgefed/garden/down/d\n/task",
        "edgefed/garden/down/d/task\n",
        "edgefed/garden/down/é/task",
        f"edgefed/garden/down/{'d' * 65}/task",
        "edgefed/garden/up/+/birth",
        "edgefed/garden/up/d/#",
        "edgefed/garden/up/d/task",
        "edgefed/garden/control/local/0/reply",
        "edgefed/garden/control/0/request",
        "edgefed/garden/control/device.al/0/request",
        "edgefed/garden/control/operator./0/request",
        "edgefed/garden/control/operator.al/0/0/request",
        "edgefed/garden/control/operator.al/16/request",
        "edgefed/garden/control/operator.al/00/request",
        "edgefed/garden/control/operator.al/c/request",
        "edgefed/garden/" + "/".join("a" * 10_000),
    ],
)
def test_what_is_not_ours_means_nothing(topic: str) -> None:
    assert TOPICS.parse(topic) is None


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["all", "up", "down", "control", "events", "c", "d", "need", DIGEST, "0", "", "+"]
        )
        | st.text(max_size=5),
        max_size=6,
    )
)
def test_what_parses_is_a_lane_with_checked_levels(levels: list[str]) -> None:
    parsed = TOPICS.parse("/".join([TOPICS.root, *levels]))
    if parsed is not None:
        assert parsed.spec.leaf == parsed.leaf
        assert parsed.who in ("", "d") or parsed.who.replace("-", "").isalnum()


@pytest.mark.parametrize("name", ["", "+", "#", "a/b", "A", "d\n", "-d", "d" * 65])
def test_names_that_would_change_the_tree_are_refused(name: str) -> None:
    for build in (Topics, TOPICS.task, TOPICS.birth, TOPICS.every_down):
        with pytest.raises(WireError):
            build(name)


def test_wrong_digests_have_no_topic() -> None:
    for digest in ("../x", DIGEST + "\n"):
        with pytest.raises(WireError):
            TOPICS.broadcast_chunk(digest)


def test_filters_match_what_they_promise() -> None:
    def matches(pattern: str, topic: str) -> bool:
        want, have = pattern.split("/"), topic.split("/")
        if want[-1] == "#":
            want, have = want[:-1], have[: len(want) - 1]
        return len(want) == len(have) and all(
            a in ("+", b) for a, b in zip(want, have, strict=True)
        )

    for pattern, branch, leaf in (
        (TOPICS.every_up(), "up", None),
        (TOPICS.every_down("d-1"), "down", None),
        (TOPICS.every_request(), "control", "request"),
        (TOPICS.every_enrolment_request(), "enrol", "request"),
        (TOPICS.broadcast_chunk(DIGEST), "all", "c"),
    ):
        found = {parsed for topic, parsed in PARSED.items() if matches(pattern, topic)}
        assert found == {
            parsed
            for parsed in PARSED.values()
            if parsed.branch == branch and leaf in (None, parsed.leaf)
        }
