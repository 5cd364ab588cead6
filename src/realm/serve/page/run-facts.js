// What the page knows of the run: fetched once, and again on request.

import { api } from "./api.js";

let known = null;

/** The /v1/run object; ``fresh``: as it is now. */
export function runFacts({ fresh = false, ...how } = {}) {
  if (known === null || fresh) {
    const asked = api.run(how);
    known = asked;
    asked.catch(() => {
      if (known === asked) known = null;
    });
  }
  return known;
}

const STEPS = [1, 2, 3, 5, 8, 10, 20, 50, 100];

/** Fill a list of numbers of blocks, none more than there are. */
export function offerCounts(select, most, wanted) {
  const numbers = STEPS.filter((number) => number <= most);
  select.replaceChildren(...numbers.map((number) => new Option(String(number), String(number))));
  select.value = String(numbers.findLast((number) => number <= wanted) ?? numbers[0]);
}

/** Choose a number in such a list; one that is not offered is added, so that a link means the same everywhere. */
export function chooseCount(select, number) {
  if (!Number.isInteger(number) || number < 1) return;
  if (![...select.options].some((option) => option.value === String(number)))
    select.append(new Option(String(number), String(number)));
  select.value = String(number);
}
