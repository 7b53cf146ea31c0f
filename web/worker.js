// worker.js: keeps the page itself, so that it opens while the server is away. Always asks the server first; never touches answers.
const shelf = "hearth-page";
const parts = ["./", "style.css", "parts.css", "icon.svg", "manifest.json", "api.js", "app.js", "book.js", "chart.js", "dashboard.js", "dom.js", "highlight.js", "log.js", "markdown.js", "options.js", "prefs.js", "runs.js", "side.js"];

self.addEventListener("install", (e) => {
  self.skipWaiting();
  e.waitUntil(caches.open(shelf).then((kept) => kept.addAll(parts)));
});
self.addEventListener("activate", (e) => e.waitUntil(self.clients.claim()));
self.addEventListener("fetch", (e) => {
  const { pathname, origin } = new URL(e.request.url);
  const part = pathname.slice(new URL(self.registration.scope).pathname.length);
  if (e.request.method !== "GET" || origin !== self.location.origin || !/^([a-z]+\.(html|js|css|svg|json))?$/.test(part)) return;
  e.respondWith((async () => {
    const kept = await caches.open(shelf);
    try {
      const reply = await fetch(e.request);
      if (reply.ok) await kept.put(e.request, reply.clone());
      return reply;
    } catch (problem) {
      const old = await kept.match(e.request);
      if (old) return old;
      throw problem;
    }
  })());
});
