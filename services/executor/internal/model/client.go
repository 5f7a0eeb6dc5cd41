package model

import (
	"fmt"
	"net/http"
)

// noRedirect follows no redirect: a provider's key and the conversation stay with the host
// that they are meant for. It has the transport of http.DefaultClient, and no time limit.
var noRedirect = &http.Client{
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// HTTPClient gives the client that a provider is called through: the given one, and for nil
// one that all share and that follows no redirect.
func HTTPClient(client *http.Client) *http.Client {
	if client == nil {
		return noRedirect
	}
	return client
}

// RedirectError is the error of an answer that leads elsewhere, and nil for other answers.
// Another attempt would be sent there again.
func RedirectError(res *http.Response) *Error {
	if res.StatusCode < 300 || res.StatusCode > 399 {
		return nil
	}
	to := "elsewhere"
	if target, err := res.Location(); err == nil {
		to = fmt.Sprintf("to %s://%s", target.Scheme, target.Host) // the rest may hold what is secret
	}
	return &Error{
		Code: CodeInvalidResponse, StatusCode: res.StatusCode,
		Message: "the provider redirects " + to + ", which is not followed, since the key and the conversation would go along: set the base URL to where the models are served",
	}
}
