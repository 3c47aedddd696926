// Rules of the Mini environments. Each world has `start(task, settings, agents)`, which returns the state of an episode,
// and `play(state, replies, order)`, which changes the state and returns {reward, feedback: {agent: text}, isOver}.
// `task` comes from the page's data, `replies` is {agent: text}, `order` lists the agents in the order of their moves.

const mean = (numbers) => numbers.reduce((one, other) => one + other, 0) / numbers.length;
const same = (one, other) => one.every((each, i) => each === other[i]);

// MiniBuild and MiniShift ------------------------------------------------------------------------------------------

const PARTS = new Set(("wall roof door window floor stair tower gate bridge fence beam arch bench lamp shelf stove bed " +
  "desk rug path well pond shed dome").split(" "));
const MATERIALS = new Set("wood stone brick glass clay iron sand wool".split(" "));

function parsedMove(text) {
  const words = text.toLowerCase().match(/[a-z]+/g) ?? [];
  const parts = words.filter((word) => PARTS.has(word)), materials = words.filter((word) => MATERIALS.has(word));
  return parts.length === 1 && materials.length === 1 ? [parts[0], materials[0]] : null;
}

// Carry out one move and return its verdict. `built` is a Map from parts to materials.
function placed(goal, built, move) {
  const wanted = move && goal.find(([part]) => part === move[0]);
  if (!wanted) return "bad";
  if (built.has(move[0])) return "taken";
  built.set(...move);
  return wanted[1] === move[1] ? "ok" : "wrong";
}

function moved(goal, built, replies, order) {
  return Object.fromEntries(order.map((agent) => [agent, placed(goal, built, parsedMove(replies[agent]))]));
}

function payoff(settings, quality, gain, isLast) {
  if (settings.reward === "dense") return gain;
  if (settings.reward === "terminal") return isLast ? quality : 0;
  return Number(isLast && quality >= settings.threshold - 1e-9);
}

// Return the words that an agent reads about the moves of a turn.
function verdictText(feedback, agents, agent, verdicts) {
  const others = agents.filter((each) => each !== agent).map((each) => verdicts[each]).join(" ");
  return { own: verdicts[agent], cross: others, both: `${verdicts[agent]} ${others}`, none: "next" }[feedback];
}

const goalText = (goal) => goal.map((pair) => pair.join(" ")).join(" ");

const MiniBuild = {
  start: (task, settings, agents) => ({ task, settings, agents, turn: 0, quality: 0, built: new Map() }),
  play(state, replies, order) {
    const { task, settings, agents, built } = state, before = state.quality;
    const verdicts = moved(task.goal, built, replies, order);
    state.turn += 1;
    state.quality = task.goal.filter(([part, material]) => built.get(part) === material).length / task.goal.length;
    const isOver = state.turn === settings.max_turns;
    const read = agents.map((agent) => [agent, verdictText(settings.feedback, agents, agent, verdicts)]);
    const reward = payoff(settings, state.quality, state.quality - before, isOver);
    return { reward, feedback: Object.fromEntries(read), isOver };
  },
};

const MiniShift = {
  start: (task, settings, agents) => ({ task, settings, agents, turn: 0, right: 0 }),
  play(state, replies, order) {
    const { task, settings, agents, turn, right } = state, total = task.offers.length * agents.length;
    const verdicts = moved(task.offers[turn], new Map(), replies, order);
    state.turn += 1;
    state.right += Object.values(verdicts).filter((verdict) => verdict === "ok").length;
    const isOver = state.turn === settings.max_turns;
    const read = agents.map((agent, seat) => {
      const words = verdictText(settings.feedback, agents, agent, verdicts);
      return [agent, isOver ? words : `${words} goal ${goalText(task.lists[state.turn][seat])}`];
    });
    const reward = payoff(settings, state.right / total, state.right / total - right / total, isOver);
    return { reward, feedback: Object.fromEntries(read), isOver };
  },
};

// MiniWriting ------------------------------------------------------------------------------------------------------

const LINKS = "first then also later meanwhile finally however therefore besides still".split(" ");
const CREDIT = [0, 0, 0.15, 0.4, 1];
const ROLES = [[1, false], [3, true], [1, true], [3, false]].map(([numFacts, hasLinks]) => ({ numFacts, hasLinks }));
const [OFF_POINT_CREDIT, LINKS_PART, WEAKEST_PART] = [0.5, 0.2, 0.3];

// Parse a text to sentences {fact, link}. `known` has the set of words for each of the four places of a fact.
function sentencesOf(text, known) {
  const pieces = text.toLowerCase().split(/[.!?;\n]/).map((piece) => piece.match(/[\p{L}\p{N}]+/gu) ?? []);
  return pieces.filter((words) => words.length).map((words) => {
    const link = LINKS.includes(words[0]) ? words[0] : "", rest = link ? words.slice(1) : words;
    const fact = [rest[1], rest[2], rest[3], rest[5]];
    const isForm = rest.length === 6 && rest[0] === "the" && rest[4] === "the";
    return { link, fact: isForm && fact.every((word, place) => known[place].includes(word)) ? fact : null };
  });
}

// Return the credit of every sentence of each writer, see `rules.credits` of the environment.
function credits(facts, written) {
  const unpaid = [...facts], numUnpaid = ROLES.map((role) => role.numFacts);
  const found = written.map((sentences) => sentences.map(() => 0));
  const isTrue = (fact) => facts.some((each) => same(each, fact));
  const stated = written.flatMap((sentences, seat) =>
    sentences.map(({ fact }, place) => ({ seat, place, fact })).filter(({ fact }) => fact));
  const key = ({ seat, fact }) => [!isTrue(fact), seat, !same(fact, facts[0])].map(Number);
  const before = (one, other) => {
    const place = [0, 1, 2].find((i) => key(one)[i] !== key(other)[i]);
    return place === undefined ? 0 : key(one)[place] - key(other)[place];
  };
  for (const { seat, place, fact } of stated.sort(before)) {
    const isRepeated = isTrue(fact) && !unpaid.some((each) => same(each, fact));
    if (isRepeated || !unpaid.length || !numUnpaid[seat]) continue;
    const equal = unpaid.map((each) => each.filter((word, i) => word === fact[i]).length);
    const nearest = equal.indexOf(Math.max(...equal)), credit = CREDIT[equal[nearest]];
    if (!credit) continue;
    found[seat][place] = credit * (seat === 0 && !same(unpaid[nearest], facts[0]) ? OFF_POINT_CREDIT : 1);
    unpaid.splice(nearest, 1);
    numUnpaid[seat] -= 1;
  }
  return found;
}

const MiniWriting = {
  start: (task, settings, agents) => ({ task, agents }),
  play({ task, agents }, replies) {
    const written = agents.map((agent) => sentencesOf(replies[agent], task.known));
    const found = credits(task.facts, written);
    const scores = written.map((sentences, seat) => {
      const { numFacts, hasLinks } = ROLES[seat], credit = found[seat];
      const total = credit.reduce((one, other) => one + other, 0);
      const stated = total / (credit.length + numFacts - total);
      const heads = new Set(sentences.filter(({ link }, i) => link && credit[i] === 1).map(({ link }) => link));
      return hasLinks ? stated * (1 - LINKS_PART + LINKS_PART * Math.min(1, heads.size / numFacts)) : stated;
    });
    return { reward: (1 - WEAKEST_PART) * mean(scores) + WEAKEST_PART * Math.min(...scores), feedback: {}, isOver: true };
  },
};

// MiniCode ---------------------------------------------------------------------------------------------------------

const MAX_TOKENS = 64, MAX_MAGNITUDE = 1e12;
const KEYWORDS = new Set(("False None True and as assert async await break class continue def del elif else except finally " +
  "for from global if import in is lambda nonlocal not or pass raise return try while with yield").split(" "));
const floorDivided = (one, other) => Math.floor(one / other);
const remainder = (one, other) => ((one % other) + other) % other;
const OPERATIONS = {
  double: (x) => 2 * x, triple: (x) => 3 * x, square: (x) => x * x, negate: (x) => -x, increment: (x) => x + 1,
  decrement: (x) => x - 1, half: (x) => floorDivided(x, 2), odd: (x) => remainder(x, 2),
};
const COMBINATIONS = { plus: (x, y) => x + y, minus: (x, y) => x - y, times: (x, y) => x * y };

class Failed extends Error {} // the code does not parse, or its evaluation fails

function check(isRight) {
  if (!isRight) throw new Failed();
}

function orNull(evaluation, ...args) {
  try {
    return evaluation(...args);
  } catch (error) {
    if (error instanceof Failed) return null;
    throw error;
  }
}

function codeTokens(text) {
  const fenced = [...text].slice(0, 1000).join("").match(/^\s*```[a-z]*\n([\s\S]*?)```\s*$/);
  const found = [], pattern = /[A-Za-z_][A-Za-z0-9_]{0,15}|[0-9]{1,3}|\/\/|[-+*%(),:]/y;
  for (const word of (fenced ? fenced[1] : text).match(/\S+/g) ?? []) {
    pattern.lastIndex = 0;
    while (pattern.lastIndex < word.length) {
      const match = pattern.exec(word);
      check(match && found.length < MAX_TOKENS);
      found.push(match[0]);
    }
  }
  return found;
}

// Parse `def NAME ( PARAMETERS ) : return EXPRESSION` by recursive descent. Throw Failed for other texts.
function parsedFunction(text) {
  const tokens = codeTokens(text);
  let place = 0;
  const accept = (...wanted) => (wanted.includes(tokens[place]) ? tokens[place++] : undefined);
  const expect = (wanted) => check(accept(wanted) !== undefined);
  const name = () => {
    const found = tokens[place++];
    check(/^[A-Za-z_]/.test(found ?? "") && !KEYWORDS.has(found));
    return found;
  };
  const list = (element) => { // elements between parentheses, with an optional comma at the end
    const found = [];
    expect("(");
    while (accept(")") === undefined) {
      found.push(element());
      if (accept(",") === undefined) {
        expect(")");
        break;
      }
    }
    return found;
  };
  const atom = () => {
    if (accept("(")) {
      const inner = sum();
      expect(")");
      return inner;
    }
    if (!/^[0-9]/.test(tokens[place] ?? "")) return { variable: name() };
    const digits = tokens[place++];
    check(/^(0+|[1-9][0-9]*)$/.test(digits)); // Python allows no zeros in front of other digits
    return { number: Number(digits) };
  };
  const primary = () => {
    let found = atom();
    while (tokens[place] === "(") {
      check("variable" in found); // only a name can be called
      found = { call: found.variable, args: list(sum) };
    }
    return found;
  };
  const factor = () => (accept("-") ? { negated: factor() } : primary());
  const chain = (element, ...signs) => {
    let left = element();
    for (let sign = accept(...signs); sign; sign = accept(...signs)) left = { sign, left, right: element() };
    return left;
  };
  const product = () => chain(factor, "*", "//", "%");
  const sum = () => chain(product, "+", "-");

  expect("def");
  const own = name(), parameters = list(() => {
    const parameter = name();
    if (accept(":")) sum(); // an annotation has no effect
    return parameter;
  });
  expect(":");
  expect("return");
  const body = sum();
  check(place === tokens.length && new Set([...parameters, own]).size === parameters.length + 1);
  check(isInLanguage(body, parameters));
  return { name: own, parameters, body };
}

function isInLanguage(node, parameters) {
  if ("variable" in node) return parameters.includes(node.variable);
  if ("call" in node) return !parameters.includes(node.call) && node.args.every((each) => isInLanguage(each, parameters));
  return children(node).every((each) => isInLanguage(each, parameters));
}

function children(node) {
  if ("sign" in node) return [node.left, node.right];
  return "negated" in node ? [node.negated] : node.args ?? [];
}

const calls = (node, name) => node.call === name || children(node).some((each) => calls(each, name));

function value({ parameters, body }, args, known) {
  check(args.length === parameters.length);
  const evaluated = (node) => {
    if ("number" in node) return node.number;
    if ("variable" in node) return args[parameters.indexOf(node.variable)];
    if ("negated" in node) return -evaluated(node.negated);
    if ("call" in node) {
      check(node.call in known);
      return known[node.call](node.args.map(evaluated));
    }
    const left = evaluated(node.left), right = evaluated(node.right);
    check(right !== 0 || "+-*".includes(node.sign));
    const result = { "+": (x, y) => x + y, "-": (x, y) => x - y, "*": (x, y) => x * y, "//": floorDivided, "%": remainder }[
      node.sign](left, right);
    check(Math.abs(result) <= MAX_MAGNITUDE);
    return result;
  };
  return evaluated(body);
}

const unary = (operation) => (args) => {
  check(args.length === 1);
  return operation(args[0]);
};
// The remainder of x comes first, because larger integers than 2 ** 53 are not exact.
const polynomial = (square, linear, modulus) => (x) => {
  const small = remainder(x, modulus);
  return remainder(square * small * small + linear * small, modulus);
};
const STAND_INS = [polynomial(31, 17, 101), polynomial(43, 29, 97)].map((hash, number) => // they replace `aux`
  unary((x) => (number ? -509 - hash(x) : 307 + hash(x)))); // no operand has these values
const operandValue = ({ operations }, number) => operations.reduceRight((x, name) => OPERATIONS[name](x), number);
const mainValue = (main, aux, inputs) => orNull(value, main, inputs, aux ? { aux } : {});
const equal = (one, other) => one !== null && one === other;

function expected({ left, combination, right }, [x, y]) {
  const [one, other] = [left, right].map((operand) => operandValue(operand, operand.variable === "x" ? x : y));
  return COMBINATIONS[combination](one, other);
}

// Return true if aux computes one operand of the task and main the rest, in a test.
function isDivided(task, aux, main, [x, y]) {
  if (!aux) return false;
  const sides = [task.left, task.right].map((operand) => [operand, operand.variable === "x" ? x : y]);
  const ways = [[true, false], [false, true]];
  if (task.left.operations.join() === task.right.operations.join()) ways.push([true, true]);
  const isComputed = (way) => sides.every(([operand, number], i) =>
    !way[i] || equal(orNull(aux, [number]), operandValue(operand, number)));
  const isLeftTo = (stand, way) => {
    const values = sides.map(([operand, number], i) => (way[i] ? stand([number]) : operandValue(operand, number)));
    return equal(mainValue(main, stand, [x, y]), COMBINATIONS[task.combination](...values));
  };
  return ways.some((way) => isComputed(way) && STAND_INS.every((stand) => isLeftTo(stand, way)));
}

function helps(aux) {
  if (aux.parameters.length !== 1) return aux.parameters.length > 1;
  const probes = [-3, 2, 5], values = probes.map((probe) => orNull(value, aux, [probe], {}));
  return !values.includes(null) && new Set(values).size > 1 && !same(values, probes);
}

const MiniCode = {
  start: (task, settings, agents) => ({ task, settings, agents }),
  play({ task, settings, agents }, replies) {
    const [helper, main] = agents.map((agent, seat) => {
      const found = orNull(parsedFunction, replies[agent]);
      return found?.name === ["aux", "main"][seat] ? found : null;
    });
    const parses = 0.1 * Boolean(helper) + 0.1 * Boolean(main);
    if (!main) return { reward: parses, feedback: {}, isOver: true };
    const aux = helper && ((args) => value(helper, args, {}));
    const values = task.inputs.map((pair) => mainValue(main, aux, pair));
    const isPassed = task.inputs.map((pair, i) => equal(values[i], expected(task, pair)));
    const usesAux = helper && calls(main.body, "aux") && helps(helper) &&
      task.inputs.some((pair, i) => mainValue(main, STAND_INS[0], pair) !== values[i]);
    const isCounted = isPassed.map((passed, i) =>
      passed && (!settings.needs_both || isDivided(task, aux, main, task.inputs[i])));
    const alone = settings.needs_both ? 0.1 : 0.2;
    const tests = usesAux ? 0.1 + 0.7 * mean(isCounted.map(Number)) : alone * mean(isPassed.map(Number));
    return { reward: parses + tests, feedback: {}, isOver: true };
  },
};

const WORLDS = { MiniBuild, MiniShift, MiniWriting, MiniCode };
