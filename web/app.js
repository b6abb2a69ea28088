// The chat: keeps the conversation, streams answers from /v1/chat/completions.
"use strict";

(() => {
  const element = (id) => document.getElementById(id);
  const conversation = element("conversation");
  const message = element("message");
  const messages = [];
  let abortController = null;

  async function errorText(response) {
    try {
      return (await response.json()).error.message;
    } catch {
      return `The server answered ${response.status}.`;
    }
  }

  function addArticle(role, text) {
    element("welcome")?.remove();
    const article = document.createElement("article");
    article.className = role;
    const title = document.createElement("h2");
    title.textContent = role === "user" ? "You" : "Model";
    const body = document.createElement("p");
    body.textContent = text;
    article.append(title, body);
    conversation.append(article);
    conversation.scrollTop = conversation.scrollHeight;
    return { article, body };
  }

  function requestBody() {
    const system = element("system").value.trim();
    const seed = element("seed").value;
    const maxTokens = Number.parseInt(element("max-tokens").value, 10);
    return {
      messages: system === "" ? messages : [{ role: "system", content: system }, ...messages],
      stream: true,
      stream_options: { include_usage: true },
      temperature: Number(element("temperature").value),
      top_p: Number(element("top-p").value),
      max_completion_tokens: Number.isInteger(maxTokens) && maxTokens > 0 ? maxTokens : null,
      seed: seed === "" ? null : Number(seed),
    };
  }

  // Calls onEvent with the JSON of each event until the stream ends.
  async function readEvents(response, onEvent) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let buffered = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      buffered += value;
      const events = buffered.split("\n\n");
      buffered = events.pop();
      for (const event of events) {
        const data = event.replace(/^data: /, "");
        if (data !== "[DONE]") onEvent(JSON.parse(data));
      }
    }
  }

  function setBusy(busy) {
    element("send").disabled = busy;
    element("stop").hidden = !busy;
    conversation.setAttribute("aria-busy", String(busy));
  }

  async function streamAnswer(view) {
    const started = performance.now();
    let firstToken = null;
    let answer = "";
    let usage = null;
    let reason = null;
    abortController = new AbortController();
    try {
      const response = await fetch("v1/chat/completions", {
        method: "POST",
        headers: { "Content-Type": "application/json", ...apiKey.headers() },
        body: JSON.stringify(requestBody()),
        signal: abortController.signal,
      });
      if (response.status === 401) apiKey.refused();
      if (!response.ok) throw new Error(await errorText(response));
      await readEvents(response, (event) => {
        if (event.error) throw new Error(event.error.message);
        usage = event.usage ?? usage;
        const choice = event.choices[0];
        if (!choice) return;
        reason = choice.finish_reason ?? reason;
        const text = choice.delta.content ?? "";
        if (text === "") return;
        firstToken ??= performance.now();
        answer += text;
        const atEnd = conversation.scrollHeight - conversation.scrollTop - conversation.clientHeight < 40;
        view.body.textContent = answer;
        if (atEnd) conversation.scrollTop = conversation.scrollHeight;
      });
    } finally {
      abortController = null;
      if (answer !== "") messages.push({ role: "assistant", content: answer });
    }
    if (usage === null || firstToken === null) return;
    const seconds = (performance.now() - firstToken) / 1000;
    const info = document.createElement("p");
    info.className = "answer-info";
    info.textContent = `${usage.completion_tokens} tokens, ` +
      `first after ${((firstToken - started) / 1000).toFixed(2)} s, ` +
      `${(Math.max(usage.completion_tokens - 1, 0) / Math.max(seconds, 1e-3)).toFixed(1)} tokens/s` +
      (reason === "length" ? ", cut at max tokens" : "");
    view.article.append(info);
  }

  // A message that got no answer is no part of the conversation: what the server refused once it would refuse
  // with every later message. Its text goes back to where it was written.
  function takeBackUnanswered(text) {
    if (messages.at(-1)?.role !== "user") return;
    messages.pop();
    if (message.value === "") message.value = text;
  }

  async function send() {
    const text = message.value.trim();
    if (text === "" || abortController !== null) return;
    message.value = "";
    element("status").textContent = "";
    messages.push({ role: "user", content: text });
    addArticle("user", text);
    const view = addArticle("assistant", "");
    setBusy(true);
    try {
      await streamAnswer(view);
    } catch (error) {
      if (error.name === "AbortError") {
        element("status").textContent = "Stopped.";
      } else {
        view.article.classList.add("failed");
        view.body.textContent += (view.body.textContent === "" ? "" : "\n") + error.message;
        element("status").textContent = "The request failed.";
      }
    } finally {
      takeBackUnanswered(text);
      setBusy(false);
      message.focus();
    }
  }

  function clear() {
    abortController?.abort();
    messages.length = 0;
    conversation.replaceChildren();
    element("status").textContent = "";
    message.focus();
  }

  async function showModel() {
    try {
      const response = await fetch("v1/models", { headers: apiKey.headers() });
      if (response.ok) {
        element("model-name").textContent = (await response.json()).data[0].id;
        return;
      }
      element("model-name").textContent = await errorText(response);
      if (response.status === 401) return apiKey.refused();  // and asks again with another key
    } catch {
      element("model-name").textContent = "The server does not answer.";
    }
    setTimeout(showModel, 2000);
  }

  element("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  message.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      send();
    }
  });
  element("stop").addEventListener("click", () => abortController?.abort());
  element("clear").addEventListener("click", clear);
  for (const id of ["temperature", "top-p"]) {
    element(id).addEventListener("input", () => {
      element(`${id}-value`).textContent = element(id).value;
    });
  }
  apiKey.onChange(showModel);
  showModel();
  message.focus();
})();
