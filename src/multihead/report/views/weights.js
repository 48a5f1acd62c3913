// Weights out of the page's data: square roots in 8 or 16 bits, base64.

function bytes(text) {
  const raw = atob(text);
  const out = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i += 1) out[i] = raw.charCodeAt(i);
  return out.buffer;
}

export function unpacked(text, bits) {
  const whole = bits === 16 ? new Uint16Array(bytes(text)) : new Uint8Array(bytes(text));
  const top = 2 ** bits - 1;
  return Float32Array.from(whole, (root) => (root / top) ** 2);
}

export function numbers(text) {
  return new Uint32Array(bytes(text));
}

// A head with its numbers: decoded when it is first looked at.
export function opened(map, bits) {
  if (!map.data) {
    map.data = unpacked(map.weights, bits);
    if (map.rows) {
      map.exact = new Map();
      const [at, keys, weights] = [numbers(map.rows.at), numbers(map.rows.keys), unpacked(map.rows.weights, bits)];
      at.forEach((word, place) => {
        const from = place * map.rows.count;
        map.exact.set(word, { keys: keys.slice(from, from + map.rows.count), weights: weights.slice(from, from + map.rows.count) });
      });
    }
  }
  return map;
}

// What one word gives: [[key, weight], …], strongest first; null where a long text's row is not in the page.
export function rowOf(map, word) {
  if (map.exact) {
    const row = map.exact.get(word);
    return row ? Array.from(row.keys, (key, i) => [key, row.weights[i]]).filter(([, weight]) => weight > 0) : null;
  }
  const [, columns] = map.shape;
  const row = Array.from(map.data.subarray(word * columns, (word + 1) * columns), (weight, key) => [key, weight]);
  return row.sort((a, b) => b[1] - a[1]);
}
