// The chat: one conversation is shown, one answer streams at a time, maybe into another conversation.
import { RefusedError, streamAnswer } from "./answer_stream.js";
import { forgetConversation, loadConversations, messagesOf, nameAfterFirstMessage, newConversation,
         onConversationsChange, saveConversation } from "./conversations.js";
import { byId, make, setText } from "./dom.js";
import { HistoryList } from "./history_list.js";
import { closePanels } from "./panels.js";
import { requestParameters, startSettings, systemPrompt } from "./settings.js";
import { TurnView } from "./turn_view.js";

const SAVE_MS = 1000;
const AT_END_PX = 60;

const freshAnswer = () => ({ content: "", reasoning: "", state: "streaming", error: "", info: "" });

class Chat {
  constructor() {
    this.shown = byId("conversation");
    this.message = byId("message");
    this.conversations = loadConversations();
    this.streaming = null;  // { conversation, turn, abort, painted, saved }
    this.views = new Map();  // of the shown conversation's turns
    this.history = new HistoryList({
      open: (id) => this.open(this.find(id)),
      rename: (id, title) => this.rename(this.find(id), title),
      remove: (id) => this.remove(id),
    });
    onConversationsChange(() => this.reload());
    this.open(this.conversations[0] ?? newConversation());
  }

  find(id) {
    return this.conversations.find((conversation) => conversation.id === id);
  }

  open(conversation) {
    this.current = conversation;
    this.views.clear();
    this.shown.replaceChildren();
    for (const turn of conversation.turns) this.addView(turn);
    if (conversation.turns.length === 0) {
      this.shown.append(make("p", { class: "muted", id: "welcome",
                                    text: "Ask something. The answer comes from the model on this machine." }));
    }
    this.shown.scrollTop = this.shown.scrollHeight;
    this.showHistory();
    this.showBusy();
    closePanels();
    // On a phone that would bring up the keyboard.
    if (!matchMedia("(pointer: coarse)").matches) this.message.focus();
  }

  showHistory() {
    this.history.show(this.conversations, this.current.id);
  }

  reload() {
    if (this.streaming !== null) return;
    this.conversations = loadConversations();
    this.open(this.find(this.current.id) ?? this.conversations[0] ?? newConversation());
  }

  begin() {
    this.open(newConversation());
    this.setStatus("");
  }

  rename(conversation, title) {
    if (title !== conversation.title) {
      conversation.title = title;
      conversation.named = true;
    }
    this.save(conversation);
    this.showHistory();
  }

  remove(id) {
    if (this.streaming?.conversation.id === id) this.stop();
    forgetConversation(id);
    this.conversations = this.conversations.filter((conversation) => conversation.id !== id);
    if (this.current.id === id) this.open(this.conversations[0] ?? newConversation());
    else this.showHistory();
  }

  save(conversation) {
    // Deleted while its answer was coming.
    if (!this.conversations.includes(conversation)) return;
    if (saveConversation(conversation)) return;
    this.setStatus("This browser does not keep the conversation: its storage is full, or not allowed.");
  }

  addView(turn) {
    byId("welcome")?.remove();
    const view = new TurnView(turn, { edit: (edited, text) => this.edit(edited, text),
                                      regenerate: (again) => this.answerAgain(again, again.answer) });
    this.views.set(turn, view);
    this.shown.append(...view.nodes);
    view.setBusy(this.streaming !== null);
  }

  setStatus(text) {
    setText(byId("status"), text);
  }

  showBusy() {
    const busy = this.streaming !== null;
    const here = this.streaming?.conversation === this.current;
    byId("send").hidden = busy;
    byId("stop").hidden = !busy;
    this.shown.setAttribute("aria-busy", String(here));
    for (const view of this.views.values()) view.setBusy(busy);
  }

  // Only where the reader is at the end already.
  keepAtEnd(change) {
    const left = this.shown.scrollHeight - this.shown.scrollTop - this.shown.clientHeight;
    change();
    if (left < AT_END_PX) this.shown.scrollTop = this.shown.scrollHeight;
  }

  paint(turn) {
    const view = this.views.get(turn);
    if (view) this.keepAtEnd(() => view.show());
  }

  // As often as the screen shows it.
  paintSoon() {
    const { streaming } = this;
    if (streaming.painted) return;
    streaming.painted = true;
    requestAnimationFrame(() => {
      streaming.painted = false;
      this.paint(streaming.turn);
    });
    if (performance.now() - streaming.saved < SAVE_MS) return;
    streaming.saved = performance.now();
    this.save(streaming.conversation);
  }

  send() {
    const text = this.message.value.trim();
    if (text === "" || this.streaming !== null) return;
    this.message.value = "";
    const turn = { text, answer: freshAnswer() };
    this.current.turns.push(turn);
    nameAfterFirstMessage(this.current);
    this.addView(turn);
    this.shown.scrollTop = this.shown.scrollHeight;
    this.answer(turn);
  }

  // What came after it was said to another message.
  edit(turn, text) {
    if (this.streaming !== null) return;
    turn.text = text;
    nameAfterFirstMessage(this.current);
    this.answerAgain(turn, null);
  }

  // before: the answer that comes back if there is no other; null: none, it was to another message.
  answerAgain(turn, before) {
    if (this.streaming !== null) return;
    const at = this.current.turns.indexOf(turn);
    this.current.turns.length = at + 1;
    turn.answer = freshAnswer();
    this.open(this.current);
    this.answer(turn, before);
  }

  async answer(turn, before = null) {
    const conversation = this.current;
    const { answer } = turn;
    this.streaming = { conversation, turn, abort: new AbortController(), painted: false, saved: performance.now() };
    conversation.updated = Date.now();
    this.conversations = [conversation, ...this.conversations.filter((each) => each !== conversation)];
    this.save(conversation);
    this.showHistory();
    this.setStatus("");
    this.showBusy();
    try {
      const body = { messages: messagesOf(conversation.turns, systemPrompt()), ...requestParameters() };
      await streamAnswer(answer, body, this.streaming.abort.signal, () => this.paintSoon());
      answer.state = "done";
    } catch (error) {
      this.endEarly(conversation, turn, error, before);
    }
    this.streaming = null;
    this.save(conversation);
    this.paint(turn);
    this.showBusy();
  }

  endEarly(conversation, turn, error, before) {
    const { answer } = turn;
    if (before !== null && answer.content === "") {
      Object.assign(answer, { content: before.content, reasoning: before.reasoning, info: before.info });
    }
    if (error.name === "AbortError") {
      answer.state = "stopped";
      this.setStatus("Stopped.");
      return;
    }
    this.setStatus("The request failed.");
    answer.state = error instanceof RefusedError ? "refused" : "cut";
    // What a browser says of a lost connection helps nobody.
    answer.error = error instanceof TypeError ? "The connection to the server was lost." : error.message;
    // What the server refused once it would refuse again: the text goes back to where it was written.
    if (answer.state === "refused" && conversation === this.current && this.message.value === "") {
      this.message.value = turn.text;
    }
  }

  stop() {
    this.streaming?.abort.abort();
  }

  serverIs(online) {
    const last = this.current.turns.at(-1);
    if (online && last?.answer.state === "cut") this.setStatus("The server is back: Retry asks for the answer again.");
  }

  editLast() {
    const last = this.current.turns.at(-1);
    if (last && this.streaming === null) this.views.get(last).beginEdit();
  }
}

function listen(chat) {
  byId("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    chat.send();
  });
  chat.message.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      chat.send();
    } else if (event.key === "ArrowUp" && chat.message.value === "") {
      event.preventDefault();
      chat.editLast();
    }
  });
  byId("stop").addEventListener("click", () => {
    chat.stop();
    chat.message.focus();
  });
  byId("new").addEventListener("click", () => chat.begin());
  document.addEventListener("keydown", (event) => {
    const writes = event.target.closest("input, textarea") !== null;
    if (event.key === "Escape" && !closePanels()) chat.stop();
    else if (event.key === "/" && !writes && !byId("chat").hidden) {
      event.preventDefault();
      chat.message.focus();
    }
  });
  addEventListener("pagehide", () => {
    if (chat.streaming !== null) chat.save(chat.streaming.conversation);
  });
}

export function startChat() {
  startSettings();
  const chat = new Chat();
  listen(chat);
  return chat;
}
