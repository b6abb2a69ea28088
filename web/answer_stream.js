// One request for an answer: streams it, and measures when what came.
import { apiKey } from "./api_key.js";
import { errorText, readEvents } from "./server_events.js";

export class RefusedError extends Error {}

// Fills the answer as its text comes; onText is called each time there is more. Throws RefusedError with what the
// server said, AbortError after the signal, and another Error if the connection is lost.
export async function streamAnswer(answer, body, signal, onText) {
  const started = performance.now();
  let firstToken = null;
  let usage = null;
  let reason = null;
  let complete = false;
  const response = await fetch("v1/chat/completions", {
    method: "POST",
    headers: { "Content-Type": "application/json", ...apiKey.headers() },
    body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
    signal,
  });
  if (response.status === 401) apiKey.refused();
  if (!response.ok) throw new RefusedError(await errorText(response));
  await readEvents(response, (name, data) => {
    if (data === "[DONE]") {
      complete = true;
      return;
    }
    const event = JSON.parse(data);
    if (event.error) throw new Error(event.error.message);
    usage = event.usage ?? usage;
    const choice = event.choices[0];
    if (!choice) return;
    reason = choice.finish_reason ?? reason;
    const text = choice.delta.content ?? "";
    const reasoning = choice.delta.reasoning_content ?? choice.delta.reasoning ?? "";
    if (text === "" && reasoning === "") return;
    firstToken ??= performance.now();
    answer.content += text;
    answer.reasoning += reasoning;
    onText();
  });
  if (!complete) throw new Error("The answer broke off.");
  if (usage === null || firstToken === null) return;
  const seconds = (performance.now() - firstToken) / 1000;
  answer.info = `${usage.completion_tokens} tokens, first after ${((firstToken - started) / 1000).toFixed(2)} s, ` +
    `${(Math.max(usage.completion_tokens - 1, 0) / Math.max(seconds, 1e-3)).toFixed(1)} tokens/s` +
    (reason === "length" ? ", cut at max tokens" : "");
}
