// Llama models of a trained team: tokenizer, forward pass with a KV cache, greedy decoding.
// The calculations follow transformers' LlamaForCausalLM and the Encoder of collm.

// Decode base64 text to 16-bit floating-point numbers, as a Float32Array.
function halves(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const bits = new Uint16Array(bytes.buffer);
  return Float32Array.from(bits, (each) => {
    const sign = each & 0x8000 ? -1 : 1, exponent = (each >> 10) & 31, fraction = each & 1023;
    return exponent ? sign * 2 ** (exponent - 15) * (1 + fraction / 1024) : sign * 2 ** -24 * fraction;
  });
}

// Byte-level BPE, as tokenizers has it. `data`: {vocab: {token: id}, merges: ["a b", ...], control: [id, ...]}.
class Tokenizer {
  static WORDS = / ?\p{N}| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+/gu;

  constructor({ vocab, merges, control }) {
    this.vocab = new Map(Object.entries(vocab));
    this.tokens = new Map(Object.entries(vocab).map(([token, id]) => [id, token]));
    this.ranks = new Map(merges.map((pair, rank) => [pair, rank]));
    this.control = new Set(control);
    this.letterOf = []; // for each byte: the letter that stands for the byte in the vocabulary
    for (let byte = 0, extra = 256; byte < 256; byte++) {
      const isPrintable = (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
      this.letterOf.push(String.fromCodePoint(isPrintable ? byte : extra++));
    }
    this.byteOf = new Map(this.letterOf.map((letter, byte) => [letter, byte]));
  }

  encode(text) {
    const bytes = new TextEncoder();
    const words = text.match(Tokenizer.WORDS) ?? [];
    return words.flatMap((word) => this.#merged(Array.from(bytes.encode(word), (byte) => this.letterOf[byte])));
  }

  decode(ids) {
    const letters = ids.filter((id) => !this.control.has(id)).flatMap((id) => [...this.tokens.get(id)]);
    return new TextDecoder().decode(Uint8Array.from(letters, (letter) => this.byteOf.get(letter)));
  }

  #merged(pieces) {
    const whole = this.vocab.get(pieces.join(""));
    if (whole !== undefined) return [whole];
    for (;;) {
      let best = Infinity, place = -1;
      for (let i = 0; i + 1 < pieces.length; i++) {
        const rank = this.ranks.get(`${pieces[i]} ${pieces[i + 1]}`) ?? Infinity;
        if (rank < best) [best, place] = [rank, i];
      }
      if (place < 0) return pieces.map((piece) => this.vocab.get(piece));
      pieces.splice(place, 2, pieces[place] + pieces[place + 1]);
    }
  }
}

// `config`: the model's config.json. `weights`: all tensors in the order of the constructor, as base64 of float16.
class LanguageModel {
  constructor(config, weights) {
    this.config = config;
    const numbers = halves(weights), { hidden_size: hidden, intermediate_size: wide, vocab_size: size } = config;
    const inner = config.num_attention_heads * config.head_dim;
    let start = 0;
    const next = (length) => numbers.subarray(start, (start += length));
    this.embedding = next(size * hidden);
    this.layers = Array.from({ length: config.num_hidden_layers }, () => ({
      before: next(hidden), query: next(inner * hidden), key: next(inner * hidden), value: next(inner * hidden),
      output: next(hidden * inner), after: next(hidden), gate: next(wide * hidden), up: next(wide * hidden),
      down: next(hidden * wide),
    }));
    this.norm = next(hidden);
    if (start !== numbers.length) throw new Error(`the model has ${numbers.length} weights, expected ${start}`);
    this.reset();
  }

  reset() {
    this.cache = this.layers.map(() => ({ keys: [], values: [] }));
  }

  // Read one token and return the logits of the next one.
  read(id) {
    const { hidden_size: hidden, rms_norm_eps: epsilon } = this.config;
    const x = this.embedding.slice(id * hidden, (id + 1) * hidden);
    this.layers.forEach((layer, number) => {
      add(x, times(layer.output, this.#attended(layer, this.cache[number], normalized(x, layer.before, epsilon))));
      const inner = normalized(x, layer.after, epsilon), gate = times(layer.gate, inner);
      add(x, times(layer.down, times(layer.up, inner).map((up, i) => (up * gate[i]) / (1 + Math.exp(-gate[i])))));
    });
    return times(this.embedding, normalized(x, this.norm, epsilon));
  }

  #attended(layer, { keys, values }, x) {
    const { num_attention_heads: heads, head_dim: size, rope_theta: theta } = this.config;
    const position = keys.length, query = turned(times(layer.query, x), size, position, theta);
    keys.push(turned(times(layer.key, x), size, position, theta));
    values.push(times(layer.value, x));
    const mixed = new Float32Array(heads * size);
    for (let start = 0; start < heads * size; start += size) {
      const scores = keys.map((key) => {
        let sum = 0;
        for (let i = start; i < start + size; i++) sum += query[i] * key[i];
        return sum / Math.sqrt(size);
      });
      const highest = Math.max(...scores), shares = scores.map((score) => Math.exp(score - highest));
      const total = shares.reduce((one, other) => one + other);
      values.forEach((value, j) => {
        for (let i = start; i < start + size; i++) mixed[i] += (value[i] * shares[j]) / total;
      });
    }
    return mixed;
  }
}

function add(target, source) {
  for (let i = 0; i < target.length; i++) target[i] += source[i];
}

function times(matrix, vector) {
  const found = new Float32Array(matrix.length / vector.length);
  for (let row = 0, place = 0; row < found.length; row++) {
    let sum = 0;
    for (let column = 0; column < vector.length; column++) sum += matrix[place++] * vector[column];
    found[row] = sum;
  }
  return found;
}

function normalized(x, weight, epsilon) {
  const square = x.reduce((sum, each) => sum + each * each, 0) / x.length, scale = 1 / Math.sqrt(square + epsilon);
  return x.map((each, i) => each * scale * weight[i]);
}

// Rotary position embedding: element i of a head's first half is rotated with element i of its second half.
function turned(x, size, position, theta) {
  const found = new Float32Array(x.length), half = size / 2;
  for (let start = 0; start < x.length; start += size) {
    for (let i = 0; i < half; i++) {
      const angle = position * theta ** (-i / half), one = x[start + i],
        other = x[start + half + i];
      found[start + i] = one * Math.cos(angle) - other * Math.sin(angle);
      found[start + half + i] = other * Math.cos(angle) + one * Math.sin(angle);
    }
  }
  return found;
}

// One agent of a team in one episode. The model reads the messages and its own replies, as in training.
class Player {
  constructor(model, tokenizer, maxNewTokens) {
    Object.assign(this, { model, tokenizer, maxNewTokens, ids: [], end: model.config.eos_token_id });
  }

  hear(text) {
    this.ids.push(...this.tokenizer.encode(`${text}\n`));
  }

  // Return the most likely reply, token by token.
  reply() {
    this.model.reset(); // agents may share the model
    let logits;
    for (const id of this.ids) logits = this.model.read(id);
    const chosen = [];
    while (chosen.length < this.maxNewTokens) {
      const id = logits.indexOf(Math.max(...logits));
      chosen.push(id);
      if (id === this.end) break;
      logits = this.model.read(id);
    }
    this.ids.push(...chosen);
    if (chosen.at(-1) !== this.end) this.ids.push(this.end);
    return this.tokenizer.decode(chosen);
  }
}
