// A message and its answer, as they are shown.
import { button, copyButton, make, setText } from "./dom.js";
import { MarkdownView } from "./markdown.js";

export class TurnView {
  // actions: { edit(turn, text), regenerate(turn) }.
  constructor(turn, actions) {
    this.turn = turn;
    this.actions = actions;
    this.userText = make("p", { class: "said", text: turn.text });
    this.userTools = make("div", { class: "tools" }, button("Edit", () => this.beginEdit(), { class: "edit" }));
    this.user = make("article", { class: "user" }, make("h2", { text: "You" }), this.userText, this.userTools);

    this.reasoning = make("div", { class: "markdown" });
    this.fold = make("details", { class: "reasoning", hidden: true }, make("summary", { text: "Reasoning" }),
                     this.reasoning);
    this.body = make("div", { class: "markdown body" });
    this.error = make("p", { class: "error", hidden: true });
    this.info = make("p", { class: "answer-info", hidden: true });
    this.copy = copyButton(() => this.turn.answer.content, { class: "copy-answer" });
    this.again = button("Regenerate", () => this.actions.regenerate(this.turn), { class: "regenerate" });
    this.assistant = make("article", { class: "assistant" }, make("h2", { text: "Model" }), this.fold, this.body,
                          this.error, this.info, make("div", { class: "tools" }, this.copy, this.again));
    this.nodes = [this.user, this.assistant];
    this.bodyView = new MarkdownView(this.body);
    this.reasoningView = new MarkdownView(this.reasoning);
    this.show();
  }

  show() {
    const { answer } = this.turn;
    const failed = answer.state === "cut" || answer.state === "refused";
    this.fold.hidden = answer.reasoning === "";
    this.reasoningView.show(answer.reasoning);
    this.bodyView.show(answer.content);
    this.assistant.classList.toggle("failed", failed);
    this.assistant.classList.toggle("streaming", answer.state === "streaming");
    this.error.hidden = !failed && answer.state !== "stopped";
    setText(this.error, failed ? answer.error : "Stopped.");
    this.info.hidden = answer.info === "";
    setText(this.info, answer.info);
    setText(this.again, failed ? "Retry" : "Regenerate");
    this.copy.hidden = answer.content === "";
  }

  setBusy(busy) {
    for (const each of [this.again, this.userTools.querySelector("button")]) each.disabled = busy;
  }

  beginEdit() {
    if (this.editor) return;
    const field = make("textarea", { "aria-label": "Edit the message", rows: 3 });
    field.value = this.turn.text;
    const end = () => {
      this.editor.replaceWith(this.userText);
      this.editor = null;
      this.userTools.hidden = false;
      this.userTools.querySelector("button").focus();
    };
    const send = () => {
      const text = field.value.trim();
      if (text === "") return;
      end();
      this.actions.edit(this.turn, text);
    };
    field.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        event.stopPropagation();
        end();
      } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        send();
      }
    });
    this.editor = make("div", { class: "editor" }, field,
                       make("div", { class: "tools" }, button("Send again", send), button("Cancel", end)));
    this.userText.replaceWith(this.editor);
    this.userTools.hidden = true;
    field.focus();
  }
}
