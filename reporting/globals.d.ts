// What tsc cannot see in the scripts of the pages: the bundles d3, Observable Plot and NiiVue, and what tests read.
declare const d3: any;
declare const Plot: any;
declare const niivue: any;

interface Window {
  page: { drawAll: () => void; addContours?: (parts: any) => void };
}

interface Element {
  /** The row of data that a mark of a chart stands for. */
  pageRow?: Record<string, any>;
}
