"use strict";
// The sliders make the charts of their step wider.
for (const slider of document.querySelectorAll("input[type=range]")) {
  const panel = slider.closest(".panel");
  slider.addEventListener("input", () => panel.style.setProperty("--zoom", slider.value));
}
