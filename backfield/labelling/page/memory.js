// What a window remembers until it is closed; a frame in another page may not be allowed to.
export function recall(key) { try { return sessionStorage.getItem(key); } catch { return null; } }

export function remember(key, value) { try { sessionStorage.setItem(key, value); } catch { /* then not */ } }
