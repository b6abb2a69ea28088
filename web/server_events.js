// Server-sent events of an answer to fetch: EventSource can neither post nor send a key.

// Calls onEvent(name, data) for each event until the stream ends; name is "message" if the event has none.
export async function readEvents(response, onEvent) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffered = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    buffered += value;
    const events = buffered.split("\n\n");
    buffered = events.pop();
    for (const event of events) {
      let name = "message";
      const data = [];
      for (const line of event.split("\n")) {
        if (line.startsWith("event: ")) name = line.slice("event: ".length);
        if (line.startsWith("data: ")) data.push(line.slice("data: ".length));
      }
      if (data.length > 0) onEvent(name, data.join("\n"));
    }
  }
}

// What the server said in place of an answer.
export async function errorText(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return `The server answered ${response.status}.`;
  }
}
