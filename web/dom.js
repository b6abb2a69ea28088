// Builds elements. Text is always text: nothing here reads markup.

export const byId = (id) => document.getElementById(id);

// properties: class, text, on<event> functions, dataset, and attributes (true: without a value; null and false:
// left out).
export function make(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") node.className = value;
    else if (name === "text") node.textContent = value;
    else if (name === "dataset") Object.assign(node.dataset, value);
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export function button(text, onClick, properties = {}) {
  return make("button", { type: "button", text, onclick: onClick, ...properties });
}

// A button that copies what text() gives. Without the clipboard, which browsers keep for https and this machine, the
// old way.
export function copyButton(text, properties = {}) {
  const copy = button("Copy", async () => {
    copy.textContent = await copied(text()) ? "Copied" : "Not allowed";
    setTimeout(() => { copy.textContent = "Copy"; }, 1500);
  }, properties);
  return copy;
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = make("textarea", { class: "visually-hidden" });
    field.value = text;
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    return done;
  }
}

// Only if it changes: a node that is written anew loses a reader's selection, and screen readers say it again.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
