// On paper nothing can be unfolded: open everything before printing, and fold it again afterwards.
(function () {
  var opened = [];
  window.addEventListener("beforeprint", function () {
    opened = Array.prototype.slice.call(document.querySelectorAll("details:not([open])"));
    opened.forEach(function (d) { d.open = true; });
  });
  window.addEventListener("afterprint", function () {
    opened.forEach(function (d) { d.open = false; });
  });
  // A link to a rung (#rung-storage) shows what it points at.
  function unfold() {
    var target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    var fold = target && target.querySelector("details");
    if (fold) { fold.open = true; }
  }
  window.addEventListener("hashchange", unfold);
  unfold();
})();
