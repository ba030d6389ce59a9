// Short names for what the document offers.
export const $ = (id) => document.getElementById(id);

export function element(kind, properties = {}, ...children) {
  const made = Object.assign(document.createElement(kind), properties);
  made.append(...children);
  return made;
}
