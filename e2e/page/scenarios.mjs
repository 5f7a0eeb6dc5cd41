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

// Says something that waits until the test makes room, when the page has said why.
export async function waitForSlot(chat, { texts }, tell) {
  await chat.say(texts[0]);
  await chat.noticed('no free slot');
  tell('queued');
  await chat.settled();
  return { looks: [await chat.look()] };
}

// Says something to a server that the test has taken away at "open".
export async function sayToNobody(chat, { gateway, texts }, tell) {
  tell('open');
  await stands(`${gateway}/status?sessionId=nobody`, 'gone');
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

// Chooses the agent, says the first text, and does step by step what is to be done then: tells the test
// which session it is and waits until the session stands as wanted ("gone": until there
// is no server), waits until the page asks nobody any more, fills a field, presses a button,
// says something, loads the page anew.
export async function answers(chat, { gateway, agent, texts, steps }, tell) {
  if (agent) await chat.choose(agent);
  await chat.say(texts[0]);
  await chat.settled();
  const looks = [await chat.look()];
  for (const step of steps) {
    const see = step.until && step.press ? await blindfold(chat) : undefined;
    if (step.until) {
      tell(chat.session);
      await stands(`${gateway}/status?sessionId=${encodeURIComponent(chat.session)}`, step.until);
    }
    if (step.asksNobody) await chat.page.locator('.ask').first().waitFor({ state: 'detached' });
    if (step.fill) await chat.fill(step.fill, step.text);
    if (step.press) await (step.keyboard ? chat.pressByKeyboard(step.press) : chat.press(step.press));
    see?.();
    if (step.say) await chat.say(step.say);
    if (step.notice) {
      await chat.noticed(step.notice);
      tell(step.notice);
    }
    if (step.reload) await chat.reload();
    await chat.settled();
    looks.push(await chat.look());
  }
  return { looks };
}

// blindfold keeps the page from learning how the session stands, so that what it asks is
// still there to be answered; what it gives ends that.
async function blindfold(chat) {
  let see;
  const seen = new Promise((resolve) => {
    see = resolve;
  });
  await chat.page.route(/\/status\?/, async (route) => {
    await seen;
    await route.continue();
  });
  return see;
}

// stands resolves when the session stands as wanted.
async function stands(url, wanted) {
  const status = async () => (await (await fetch(url)).json()).status;
  while ((await status().catch(() => 'gone')) !== wanted) {
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
