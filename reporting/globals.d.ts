// Declarations for tsc that the scripts of the pages do not contain: d3, Observable Plot, NiiVue, and properties that tests read.
declare const d3: any;
declare const Plot: any;
declare const niivue: any;

interface Window {
  page: { drawAll: () => void; addContours?: (parts: any) => void };
}

interface Element {
  /** The row of data of a chart's mark. */
  pageRow?: Record<string, any>;
}
