export function make(tag, className, ...children) {
  const element = document.createElement(tag);
  element.className = className;
  element.append(...children);
  return element;
}

export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
