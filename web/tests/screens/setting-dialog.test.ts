import { expect, it } from 'vitest';
import { readValue } from '../../src/screens/configuration/setting-dialog';

it.each([
  ['10m', '"10m"'],
  ['15 4 * * *', '"15 4 * * *"'],
  ['5', '5'],
  ['9007199254740993', '9007199254740993'],
  ['"5"', '"5"'],
  ['["a"]', '["a"]'],
  ['null', 'null'],
])('sends %s as JSON if it is JSON, otherwise as text', (typed, sent) => {
  expect(readValue(typed).text).toBe(sent);
});
