// What the user does. Each scenario gets the page, the options of the Go test and
// a way to tell it something in the middle, and returns {looks}: what was to be
// seen at the moments that the test looks at; and {cut}: the text of the answer
// when something happened to it.

// Says each text when the answer to the former one is there.
export async function turns(chat, { texts }) {
  const looks = [await chat.look()];
  for (const text of texts) {
    await chat.say(text);
    await chat.settled();
    looks.push(await chat.look());
  }
  return { looks };
}

// The same, and loads the page anew.
export async function turnsAndReload(chat, options) {
  const { looks } = await turns(chat, options);
  await chat.reload();
  return { looks: [...looks, await chat.look()] };
}

// The same, and opens the cards of the tools by keyboard.
export async function turnsAndCards(chat, options) {
  const { looks } = await turns(chat, options);
  const closed = chat.page.locator('article .tool:not([open]) > summary');
  while ((await closed.count()) > 0) {
    await closed.first().focus();
    await chat.page.keyboard.press('Enter');
  }
  return { looks: [...looks, await chat.look()] };
}

// Sends what the empty page suggests.
export async function choose(chat, { texts }) {
  const looks = [await chat.look()];
  await chat.press(texts[0]);
  await chat.settled();
  return { looks: [...looks, await chat.look()] };
}

// Loads the page anew in the middle of the answer.
export async function reload(chat, { texts, half }) {
  await chat.say(texts[0]);
  const cut = await chat.answerOf(half);
  await chat.reload();
  return { looks: [await chat.look()], cut };
}

// Watches while the test does something to the server: at "half", half of the
// answer is there; at "lost", the page says that it has lost the server.
export async function outlive(chat, { texts, half }, tell) {
  await chat.say(texts[0]);
  const cut = await chat.answerOf(half);
  tell('half');
  await chat.noticed('lost');
  tell('lost');
  await chat.settled();
  return { looks: [await chat.look()], cut };
}

// Says something to a server that the test has taken away at "open".
export async function sayToNobody(chat, { texts }, tell) {
  tell('open');
  await chat.say(texts[0]);
  await chat.noticed('lost');
  tell('lost');
  await chat.settled();
  return { looks: [await chat.look()] };
}

// Loses the connection (the test's proxy cuts it at "half") and finds no way to
// the server until another client has got the whole answer.
export async function comeLate(chat, { texts, half, direct }, tell) {
  await chat.page.route(/\/stream$/, (route) => route.abort('connectionrefused'));
  await chat.say(texts[0]);
  const cut = await chat.answerOf(half);
  tell('half');
  await chat.noticed('lost');
  const other = await fetch(`${direct}/chat/${encodeURIComponent(chat.session)}/stream`);
  await other.text();
  await chat.page.unroute(/\/stream$/);
  await chat.settled();
  return { looks: [await chat.look()], cut };
}

// Begins a new chat, goes back to the old one and forth again.
export async function newChat(chat, { texts }) {
  const looks = [];
  for (const step of [
    () => chat.say(texts[0]),
    () => chat.press('New chat'),
    () => chat.say(texts[1]),
    () => chat.page.goBack(),
    () => chat.page.goForward(),
  ]) {
    await step();
    await chat.settled();
    looks.push(await chat.look());
  }
  return { looks };
}
