
// The page of `deft ... --html`: one timeline, from the element that holds it.
const timeline = JSON.parse(document.getElementById("timeline").textContent);
document.title = `${timeline.profile}: ${timeline.policy}`;
document.getElementById("title").textContent = timeline.profile;
document.getElementById("subtitle").textContent =
  `Policy ${timeline.policy} on ${timeline.world_size} ranks, two steady cycles, simulated` +
  (timeline.note === "" ? "." : ` (${timeline.note}).`);
drawLanes(document.getElementById("lanes"), timeline);
