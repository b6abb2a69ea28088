// The list of conversations beside the chat: open, rename, delete.
import { button, byId, make } from "./dom.js";

export class HistoryList {
  // actions: { open(id), rename(id, title), remove(id) }.
  constructor(actions) {
    this.actions = actions;
    this.list = byId("conversations");
  }

  show(conversations, currentId) {
    const rows = conversations.map((conversation) => this.rowOf(conversation, conversation.id === currentId));
    this.list.replaceChildren(...rows);
  }

  rowOf(conversation, isCurrent) {
    const open = button(conversation.title, () => this.actions.open(conversation.id),
                        { class: "open", "aria-current": isCurrent ? "true" : null, title: conversation.title });
    const row = make("li", { dataset: { id: conversation.id } }, open,
      button("✎", () => this.beginRename(row, open, conversation),
             { class: "icon rename", "aria-label": `Rename ${conversation.title}` }),
      button("✕", (event) => this.askRemove(event.currentTarget, conversation),
             { class: "icon remove", "aria-label": `Delete ${conversation.title}` }));
    return row;
  }

  beginRename(row, open, conversation) {
    const field = make("input", { "aria-label": "Name of the conversation" });
    field.value = conversation.title;
    let ended = false;
    const end = (title) => {
      if (ended) return;
      ended = true;
      this.actions.rename(conversation.id, title.trim() === "" ? conversation.title : title.trim());
      this.list.querySelector(`[data-id="${conversation.id}"] .open`)?.focus();
    };
    field.addEventListener("keydown", (event) => {
      event.stopPropagation();
      if (event.key === "Enter") end(field.value);
      if (event.key === "Escape") end(conversation.title);
    });
    field.addEventListener("blur", () => end(field.value));
    open.replaceWith(field);
    field.select();
  }

  // Twice, since there is no way back.
  askRemove(asked, conversation) {
    if (asked.dataset.sure === "true") return this.actions.remove(conversation.id);
    asked.dataset.sure = "true";
    asked.textContent = "Delete?";
    asked.setAttribute("aria-label", `Delete ${conversation.title} for good`);
    const forget = () => {
      asked.dataset.sure = "false";
      asked.textContent = "✕";
      asked.setAttribute("aria-label", `Delete ${conversation.title}`);
    };
    asked.addEventListener("blur", forget, { once: true });
  }
}
