// Package httptool makes tools of HTTP requests that are described as data.
//
// What the model says goes into a request as data only: {name} in the path of the URL
// stands for the argument name, escaped, and cannot become another segment, another
// host or a query; in the values of the query it is escaped likewise; in the body it
// is a JSON value or a part of a text. The host is fixed by the configuration and on the list of
// allowed hosts, as is the host of every redirect.
//
// Values of headers and of the query may hold secrets: ${NAME} is looked up when
// the tool is made, never later, and is never told to a model: texts of errors name
// neither the URL nor its query.
package httptool
