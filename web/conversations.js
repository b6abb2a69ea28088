// Conversations, kept in this browser: one entry of localStorage each, so that two tabs do not overwrite each other's.
//
// A conversation: { id, title, named, updated, turns: [{ text, answer }] }; an answer: { content, reasoning, state,
// error, info }. Its state: "streaming" | "done" | "stopped" | "cut" (the server was lost, or the page left) |
// "refused" (the server would not answer). What was refused, or cut before its first token, is no part of what the
// model is told.
import { keep, keptJson, keptKeys } from "./storage.js";

const PREFIX = "tandem-conversation-";
const MAX_TITLE = 60;

function isConversation(value) {
  return value !== null && typeof value === "object" && typeof value.title === "string" && Array.isArray(value.turns) &&
    value.turns.every((turn) => typeof turn?.text === "string" && typeof turn?.answer?.content === "string");
}

function read(key) {
  const conversation = keptJson(key);
  if (!isConversation(conversation)) return null;
  for (const { answer } of conversation.turns) {
    if (answer.state !== "streaming") continue;
    answer.state = "cut";
    answer.error = "The page was left before the answer was complete.";
  }
  return conversation;
}

export function newConversation() {
  // crypto.randomUUID is for secure contexts only.
  const id = [...crypto.getRandomValues(new Uint32Array(3))].map((part) => part.toString(36)).join("");
  return { id, title: "New conversation", named: false, updated: Date.now(), turns: [] };
}

// Newest first.
export function loadConversations() {
  return keptKeys(PREFIX).map(read).filter((conversation) => conversation !== null)
    .sort((a, b) => b.updated - a.updated);
}

// False if the browser does not keep it. One without a message is not kept.
export function saveConversation(conversation) {
  if (conversation.turns.length === 0) return true;
  return keep(PREFIX + conversation.id, JSON.stringify(conversation));
}

export function forgetConversation(id) {
  keep(PREFIX + id, null);
}

export function nameAfterFirstMessage(conversation) {
  if (conversation.named || conversation.turns.length === 0) return;
  const line = conversation.turns[0].text.trim().split("\n")[0];
  conversation.title = line.length > MAX_TITLE ? `${line.slice(0, MAX_TITLE - 1)}…` : line;
}

// What the model is told before and with the last of these turns.
export function messagesOf(turns, systemPrompt) {
  const messages = systemPrompt === "" ? [] : [{ role: "system", content: systemPrompt }];
  turns.forEach((turn, index) => {
    const isLast = index === turns.length - 1;
    if (!isLast && turn.answer.content === "") return;
    messages.push({ role: "user", content: turn.text });
    if (!isLast) messages.push({ role: "assistant", content: turn.answer.content });
  });
  return messages;
}

// Another tab has changed them.
export function onConversationsChange(callback) {
  addEventListener("storage", (event) => {
    if (event.key === null || event.key.startsWith(PREFIX)) callback();
  });
}
