// Package profile describes how servers deviate from OpenAI's chat completions.
//
// Many servers offer chat completions, and each accepts a little less than OpenAI or sends a little more. A Profile has these quirks as
// data. Rows lists the known ones, with a source for each. Find applies every row that matches the base URL and the name of the model,
// in the order of the table: first the row of the server, then the rows of the model's family, because a chat template has quirks of its
// own behind any server. A server without a row gets Compatible, the form that most servers accept.
//
// An agents file may name a row and change single fields (Override). A server that refuses a request for a known reason teaches a more
// careful profile (Learn): the caller sends the request again, in the new form, and keeps the profile for later requests.
package profile
