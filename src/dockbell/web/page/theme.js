// Runs before anything is painted: the theme that was chosen here last, or the system's.
'use strict';
try {
  const chosen = localStorage.getItem('dockbell-theme');
  if (chosen === 'light' || chosen === 'dark') document.documentElement.dataset.theme = chosen;
} catch { /* storage is forbidden: the system's theme, then */ }
