"""What a fleet's router makes of a server's KV events: which blocks are cached where, by the events alone."""

import json
import time

import msgpack
import zmq

END = b"\xff" * 8
PATIENCE_S = 60
FIELDS = {
    "BlockStored": ["block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name",
                    "extra_keys"],
    "BlockRemoved": ["block_hashes", "medium"],
    "AllBlocksCleared": [],
}


def config_flag(folder, **fields):
    """--kv-events-config with sockets in the folder."""
    config = {"enable_kv_cache_events": True, "endpoint": f"ipc://{folder}/events", "replay_endpoint": f"ipc://{folder}/replay",
              **fields}
    return "--kv-events-config", json.dumps(config)


class KvEventSubscriber:
    def __init__(self, folder, topic=""):
        self._context = zmq.Context()
        self._live = self._context.socket(zmq.SUB)
        self._live.set(zmq.SUBSCRIBE, topic.encode())
        self._live.connect(f"ipc://{folder}/events")
        self._replay = self._context.socket(zmq.DEALER)
        self._replay.connect(f"ipc://{folder}/replay")
        self.topic = topic
        self.next_number = 0
        self.num_events = 0
        self.kinds = set()  # (type, medium) that came
        self.forget_all()

    def forget_all(self):
        # By medium: a block's hash to the one before it, its tokens, and its salt.
        self.blocks = {"GPU": {}, "CPU": {}}

    def close(self):
        self._context.destroy(linger=0)

    def replay(self, first):
        """The numbers and batches that the server still has, from a number on."""
        self._replay.send_multipart([b"", first.to_bytes(8, "big")])
        batches = []
        while True:
            assert self._replay.poll(PATIENCE_S * 1000), "no answer to a request to send events again"
            empty, number, payload = self._replay.recv_multipart()
            assert empty == b""
            if number == END:
                assert payload == b""
                return batches
            batches.append((int.from_bytes(number, "big"), payload))

    def catch_up(self, server):
        """Takes events until there are no others that the server knows of."""
        deadline = time.monotonic() + PATIENCE_S
        while self.num_events < server.metrics()["tandem:kv_events_total"]:
            assert time.monotonic() < deadline, f"only {self.num_events} events came"
            while self._live.poll(20):
                topic, number, payload = self._live.recv_multipart()
                assert topic == self.topic.encode()
                self.take(int.from_bytes(number, "big"), payload)
            # What came before the subscription did, or was lost on the way.
            for number, payload in self.replay(self.next_number):
                self.take(number, payload)

    def take(self, number, payload):
        if number < self.next_number:
            return
        if number > self.next_number:
            for missed, batch in self.replay(self.next_number):
                if missed < number:
                    self.take(missed, batch)
        assert number == self.next_number, "events are missing"
        self.next_number += 1
        unix_s, events, rank = msgpack.unpackb(payload)
        assert abs(time.time() - unix_s) < 3600 and rank == 0 and events
        for event in events:
            if isinstance(event, list):
                event = {"type": event[0], **dict(zip(FIELDS[event[0]], event[1:], strict=True))}
            self.apply(event)
            self.num_events += 1

    def apply(self, event):
        self.kinds.add((event["type"], event.get("medium")))
        if event["type"] == "AllBlocksCleared":
            return self.forget_all()
        known = self.blocks[event["medium"]]
        if event["type"] == "BlockRemoved":
            for block in event["block_hashes"]:
                del known[block]
            return None
        assert event["type"] == "BlockStored" and event["lora_id"] is None and event["lora_name"] is None
        size, tokens, before = event["block_size"], event["token_ids"], event["parent_block_hash"]
        assert len(tokens) == size * len(event["block_hashes"])
        extra_keys = event.get("extra_keys") or [None] * len(event["block_hashes"])
        assert before is None or before in known
        for i, block in enumerate(event["block_hashes"]):
            assert block not in known
            known[block] = (before, tuple(tokens[i * size:(i + 1) * size]), tuple(extra_keys[i] or ()))
            before = block
        return None

    def chain(self, medium, tokens, salt=None):
        """The hashes of the blocks that a prompt finds: whole ones, and never its last token."""
        followers = {value: block for block, value in self.blocks[medium].items()}
        size = len(next(iter(followers))[1]) if followers else 1
        found = []
        before, extra = None, (salt,) if salt else ()
        for end in range(size, len(tokens), size):
            block = followers.get((before, tuple(tokens[end - size:end]), extra))
            if block is None:
                break
            found.append(block)
            before, extra = block, ()
        return found

    def num_cached(self, tokens):
        """That a prompt finds, in the tier that has most of it."""
        size = next((len(value[1]) for known in self.blocks.values() for value in known.values()), 0)
        return size * max(len(self.chain(medium, tokens)) for medium in self.blocks)
