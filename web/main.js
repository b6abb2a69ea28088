// The page: its views, its head, what concerns all of it.
import { apiKey } from "./api_key.js";
import { startChat } from "./chat.js";
import { byId } from "./dom.js";
import { startStrip } from "./metrics_strip.js";
import { startPanels } from "./panels.js";
import { errorText } from "./server_events.js";
import { startTheme } from "./theme.js";
import { TiersView } from "./tiers.js";

const MODEL_RETRY_MS = 2000;

async function showModel() {
  const name = byId("model-name");
  try {
    const response = await fetch("v1/models", { headers: apiKey.headers() });
    if (response.ok) {
      name.textContent = (await response.json()).data[0].id;
      return;
    }
    name.textContent = await errorText(response);
    if (response.status === 401) return apiKey.refused();  // and asks again with another key
  } catch {
    name.textContent = "The server does not answer.";
  }
  setTimeout(showModel, MODEL_RETRY_MS);
}

function startViews() {
  const tiers = new TiersView(byId("tiers"));
  const show = () => {
    const shows = location.hash === "#tiers" ? "tiers" : "chat";
    for (const view of ["chat", "tiers"]) {
      byId(view).hidden = view !== shows;
      const link = byId(`show-${view}`);
      if (view === shows) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    document.body.dataset.view = shows;
    if (shows === "tiers") tiers.start();
    else tiers.stop();
  };
  addEventListener("hashchange", show);
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) tiers.stop();
    else show();
  });
  show();
}

startTheme(byId("theme"));
startPanels();
const chat = startChat();
startStrip((online) => {
  const state = byId("server-state");
  state.hidden = online;
  state.textContent = online ? "" : "The server does not answer. What you have written stays here.";
  if (online) showModel();
  chat.serverIs(online);
});
startViews();
apiKey.onChange(showModel);
showModel();
