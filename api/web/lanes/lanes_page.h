/* A page that draws one timeline (deft.timeline/1) and asks nobody for anything: what comes before
 * the timeline's JSON and what comes after it. The JSON must have each '<' written as \u003c, so
 * that no name inside it ends the element it is in. Made at build time from the files beside. */
#ifndef LANES_PAGE_H
#define LANES_PAGE_H

extern const char lanes_page_before[];
extern const char lanes_page_after[];

#endif
