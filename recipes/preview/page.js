// Point at a mask: tell which row and column meet there, and whether the one sees the other.
for (const figure of document.querySelectorAll("figure.mask")) {
  const length = Number(figure.dataset.length);
  const splits = JSON.parse(figure.dataset.splits);
  const picture = figure.querySelector(".picture");
  const [across, down, pointed] = [".across", ".down", ".pointed"].map((name) => figure.querySelector(name));

  const splitOf = (token) => splits.findLast(([start]) => start <= token);
  const told = (token, [, , mode, sample]) => `${token} (sample ${sample}, ${mode})`;

  function sees(row, column) {
    const [own, other] = [splitOf(row), splitOf(column)];
    if (own === other) return own[2] !== "causal" || column <= row;
    return own[3] === other[3] && other[0] < own[0] && other[2] !== "noise";
  }

  picture.addEventListener("mousemove", (event) => {
    const box = picture.getBoundingClientRect();
    const [x, y] = [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
    const [column, row] = [x, y].map((part) => Math.max(0, Math.min(length - 1, Math.floor(part * length))));
    across.style.top = `${100 * y}%`;
    down.style.left = `${100 * x}%`;
    across.style.display = down.style.display = "block";
    const verb = sees(row, column) ? "sees" : "does not see";
    pointed.textContent = `Row ${told(row, splitOf(row))} ${verb} column ${told(column, splitOf(column))}.`;
  });
  picture.addEventListener("mouseleave", () => {
    across.style.display = down.style.display = "none";
  });
}
