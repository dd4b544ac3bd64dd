// What tsc cannot see in the scripts of the pages: the bundles d3 and Observable Plot, and what tests read.
declare const d3: any;
declare const Plot: any;

interface Window {
  page: { isDrawn: () => boolean; addContours?: (parts: any) => void };
  viewer: unknown;
}

interface Element {
  /** The row of data that a mark of a chart stands for. */
  pageRow?: Record<string, any>;
}
