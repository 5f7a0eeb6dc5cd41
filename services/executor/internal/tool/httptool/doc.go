// Package httptool turns HTTP requests described as data into tools.
//
// The model's arguments enter a request only as data. {name} in the path of the URL stands for the argument,
// escaped; it cannot become another segment, another host or a query. Query values are escaped likewise. In the
// body an argument is a JSON value or a part of a text. The configuration fixes the host, which must be on the
// list of allowed hosts, like the host of every redirect.
//
// Header and query values may hold secrets: ${NAME} is resolved when the tool is created, never later. No model
// sees a secret: error texts contain neither the URL nor its query.
//
// The model sees the beginning of a failed response. Users see only its status, unless Config.ShowErrors is set.
package httptool
