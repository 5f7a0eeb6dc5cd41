/** The time of day for relative times. It moves every few seconds. */
export const clock = $state({ now: Date.now() });

const tick = 5000;
setInterval(() => {
  if (!document.hidden) clock.now = Date.now();
}, tick);
