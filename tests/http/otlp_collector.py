"""A receiver of OTLP/HTTP traces as JSON, which remembers all that it is sent."""

import http.server
import json
import threading
import time


def attributes(owner):
    """A span's, an event's or a resource's, as a dict of plain values."""
    return {each["key"]: _value(each["value"]) for each in owner["attributes"]}


def _value(value):
    [(kind, content)] = value.items()
    if kind == "arrayValue":
        return [_value(each) for each in content["values"]]
    return int(content) if kind == "intValue" else content


class Span:
    def __init__(self, span, resource):
        self.name = span["name"]
        self.trace_id = span["traceId"]
        self.span_id = span["spanId"]
        self.parent_id = span.get("parentSpanId")
        self.trace_state = span.get("traceState")
        self.kind = span["kind"]
        self.start = int(span["startTimeUnixNano"])
        self.end = int(span["endTimeUnixNano"])
        self.attributes = attributes(span)
        self.events = span.get("events", [])
        self.status = span["status"]
        self.resource = resource

    @property
    def seconds(self):
        return (self.end - self.start) / 1e9


class Collector:
    def __init__(self, statuses=(), tls=None):
        """statuses: of the first answers; then 200. tls: a server's ssl.SSLContext."""
        self.requests = []  # (path, headers, JSON)
        self.hangs = threading.Event()  # set: requests get no answer
        self._statuses = list(statuses)
        self._changed = threading.Condition()
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with collector._changed:
                    status = collector._statuses.pop(0) if collector._statuses else 200
                    collector.requests.append((self.path, self.headers, body, status))
                    collector._changed.notify_all()
                while collector.hangs.is_set():
                    time.sleep(0.01)
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *unused):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if tls:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.hangs.clear()
        self._server.shutdown()
        self._server.server_close()

    def spans(self):
        """Those that it has taken."""
        found = []
        for _, _, body, status in list(self.requests):
            if status != 200:
                continue
            for of_resource in body["resourceSpans"]:
                resource = attributes(of_resource["resource"])
                for scope in of_resource["scopeSpans"]:
                    assert scope["scope"]["name"] == "tandem"
                    found += [Span(span, resource) for span in scope["spans"]]
        return found

    def wait(self, holds, timeout=20):
        """The spans once holds(spans)."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while True:
                spans = self.spans()
                if holds(spans):
                    return spans
                left = deadline - time.monotonic()
                assert left > 0, f"the spans do not come: {[span.name for span in spans]}"
                self._changed.wait(left)

    def trace_of(self, request_id):
        """The server's span of a request, and those below it."""
        def servers(spans):
            return [span for span in spans if span.attributes.get("tandem.request.id") == request_id]

        spans = self.wait(servers)
        [server] = servers(spans)
        return server, [span for span in spans if span.parent_id == server.span_id]
