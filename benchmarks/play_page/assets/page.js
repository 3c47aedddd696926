// The page: choose a game and a seat, play an episode with the team, and compare the return with the team's own.

const DATA = JSON.parse(document.getElementById("data").textContent);
const MODELS = new Map(); // language models and tokenizers, which are built when they are first needed
const element = (id) => document.getElementById(id);

function playerOf(game, agent) {
  const index = game.models[agent];
  if (!MODELS.has(index)) {
    const { config, weights, tokenizer } = DATA.models[index];
    MODELS.set(index, [new LanguageModel(config, weights), new Tokenizer(tokenizer)]);
  }
  return new Player(...MODELS.get(index), game.max_new_tokens);
}

// An episode in which models play all agents but `person`. `person` null: models play all agents.
class Episode {
  constructor(game, task, person) {
    Object.assign(this, { game, task, person, total: 0, turns: [], isOver: false });
    this.world = WORLDS[game.world];
    this.state = this.world.start(task.facts, game.settings, game.agents);
    this.players = new Map(game.agents.filter((agent) => agent !== person).map((agent) => [agent, playerOf(game, agent)]));
    for (const [agent, player] of this.players) task.openings[agent].forEach((text) => player.hear(text));
  }

  // Play one joint turn and return what each agent reads after it.
  step(reply) {
    const replies = Object.fromEntries(this.game.agents.map((agent) =>
      [agent, agent === this.person ? reply : this.players.get(agent).reply()]));
    const { reward, feedback, isOver } = this.world.play(this.state, replies, shuffled(this.game.agents));
    for (const [agent, player] of this.players) if (agent in feedback) player.hear(feedback[agent]);
    this.total += reward;
    this.turns.push(replies);
    this.isOver = isOver;
    return feedback;
  }
}

function shuffled(agents) {
  return agents.map((agent) => [Math.random(), agent]).sort(([one], [other]) => one - other).map(([, agent]) => agent);
}

function teamReturn(game, task) {
  const episode = new Episode(game, task, null);
  while (!episode.isOver) episode.step();
  return episode.total;
}

let episode;

function begin() {
  const game = DATA.games[element("game").value], person = element("seat").value;
  episode = new Episode(game, game.tasks[Math.floor(Math.random() * game.tasks.length)], person);
  element("title").textContent = `${game.title}: you are ${person}`;
  element("rules").textContent = game.rules[person];
  element("log").replaceChildren();
  element("result").hidden = true;
  element("answer").hidden = false;
  episode.task.openings[person].forEach((text) => say("You read", text));
  element("reply").value = "";
}

function say(title, text, isOwn = false) {
  const line = document.createElement("li"), head = document.createElement("b");
  head.textContent = title;
  line.append(head, text);
  line.classList.toggle("own", isOwn);
  element("log").append(line);
}

function send() {
  const reply = element("reply").value, { person, game } = episode;
  say(`Your reply, turn ${episode.turns.length + 1}`, reply, true);
  const feedback = episode.step(reply);
  if (person in feedback) say("You read", feedback[person]);
  element("reply").value = "";
  if (episode.isOver) finish(game);
  else element("reply").focus();
}

function finish(game) {
  element("answer").hidden = true;
  const result = element("result"), text = document.createElement("p"), strong = document.createElement("strong");
  strong.textContent = `The return with you is ${episode.total.toFixed(2)}.`;
  text.append(strong, ` On the same task, the team without you gets ${teamReturn(game, episode.task).toFixed(2)}. The highest ` +
    "return is 1.");
  result.replaceChildren(text, replyTable(game));
  result.hidden = false;
}

function replyTable(game) {
  const table = document.createElement("table"), head = table.createTHead().insertRow();
  for (const name of ["turn", ...game.agents]) {
    const cell = document.createElement("th");
    cell.scope = "col";
    cell.textContent = name === episode.person ? `${name} (you)` : name;
    head.append(cell);
  }
  const body = table.createTBody();
  episode.turns.forEach((replies, turn) => {
    const row = body.insertRow();
    for (const text of [turn + 1, ...game.agents.map((agent) => replies[agent])]) row.insertCell().textContent = text;
  });
  const wide = document.createElement("div");
  Object.assign(wide, { className: "wide", tabIndex: 0, role: "region", ariaLabel: "All replies" });
  wide.append(table);
  return wide;
}

function fill(select, names) {
  select.replaceChildren(...names.map(([value, text]) => new Option(text, value)));
}

function chooseGame() {
  fill(element("seat"), DATA.games[element("game").value].agents.map((agent) => [agent, agent]));
  begin();
}

fill(element("game"), DATA.games.map(({ title }, number) => [number, title]));
element("game").addEventListener("change", chooseGame);
element("seat").addEventListener("change", begin);
element("choice").addEventListener("submit", (event) => (event.preventDefault(), begin()));
element("answer").addEventListener("submit", (event) => (event.preventDefault(), send()));
element("reply").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && event.ctrlKey) element("answer").requestSubmit();
});
chooseGame();
