// Browsers run no modules from a file; only this plain script can tell the user what to do.
if (location.protocol === "file:") {
  const box = document.getElementById("message");
  box.hidden = false;
  box.textContent =
    "This page was opened as a file. Browsers do not let such a page read the images.\n" +
    "Start a web server in this folder:\n\npython3 -m http.server --bind 127.0.0.1 8000\n\nThen open http://127.0.0.1:8000/ here.";
}
