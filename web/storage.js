// localStorage, which a browser may refuse, or have no more room in.

// False if it cannot be kept. null: forgets it.
export function keep(key, text) {
  try {
    if (text === null) localStorage.removeItem(key);
    else localStorage.setItem(key, text);
    return true;
  } catch {
    return false;
  }
}

export function kept(key) {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

// What was kept as JSON; null if there is nothing, or something else.
export function keptJson(key) {
  try {
    return JSON.parse(kept(key));
  } catch {
    return null;
  }
}

export function keptKeys(prefix) {
  try {
    return Object.keys(localStorage).filter((key) => key.startsWith(prefix));
  } catch {
    return [];
  }
}
