const storageKey = 'holdfast-console-theme';
export const themes = ['system', 'light', 'dark'] as const;
export type Theme = (typeof themes)[number];

function stored(): Theme {
  const name = localStorage.getItem(storageKey);
  return themes.find((t) => t === name) ?? 'system';
}

export const theme = $state({ name: stored() });

export function applyTheme(): void {
  document.documentElement.dataset.theme = theme.name;
}

export function setTheme(name: Theme): void {
  theme.name = name;
  localStorage.setItem(storageKey, name);
  applyTheme();
}
