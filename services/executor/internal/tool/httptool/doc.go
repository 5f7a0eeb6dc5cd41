// Package httptool turns HTTP requests described as data into tools.
//
// The model's arguments enter a request only as data. {name} in the path of the URL stands for the argument,
// escaped; it cannot become another segment, another host or a query. Query values are escaped likewise. In the
// body an argument is a JSON value or a part of a text. The configuration fixes the host, which must be on the
// list of allowed hosts, like the host of every redirect.
//
// {{name}} stands for a value of the runtime, such as {{user.id}}: see package trusted. It is filled from the call, never from
// the model's arguments, and the text of an argument is never parsed. Such a value is escaped like an argument. One that a
// call does not have, such as the user, is empty; in the path of the URL the call fails then.
//
// Header and query values may hold secrets: ${NAME} is resolved when the tool is created, never later. No model
// sees a secret: error texts contain neither the URL nor its query.
//
// The model sees the beginning of a failed response. Users see only its status, unless Config.ShowErrors is set.
package httptool
