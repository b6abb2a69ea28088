// Reads /tiers as long as somebody looks, and comes again when the server has gone.
import { apiKey } from "./api_key.js";
import { errorText, readEvents } from "./server_events.js";

const RETRY_MS = 1000;

export class TiersFeed {
  // onEvent(name, content); onState(text): empty while events come.
  constructor(onEvent, onState) {
    this.onEvent = onEvent;
    this.onState = onState;
    this.abort = null;
    apiKey.onChange(() => {
      if (this.abort === null) return;
      this.stop();
      this.start();
    });
  }

  start() {
    if (this.abort !== null) return;
    this.abort = new AbortController();
    this.read(this.abort.signal);
  }

  stop() {
    this.abort?.abort();
    this.abort = null;
  }

  async read(signal) {
    while (!signal.aborted) {
      try {
        const response = await fetch("tiers", { cache: "no-store", headers: apiKey.headers(), signal });
        if (response.ok) {
          this.onState("");
          await readEvents(response, (name, data) => this.onEvent(name, JSON.parse(data)));
          this.onState("The server has ended the stream.");
        } else {
          this.onState(await errorText(response));
          if (response.status === 401) return apiKey.refused();  // and begins anew with another key
        }
      } catch {
        if (!signal.aborted) this.onState("The server does not answer.");
      }
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }
}
