package model

import (
	"fmt"
	"net/http"
)

// HTTPClient returns client, or for nil a new client without a timeout. The new client has connections of its own,
// so that nothing else in the process can close them. It follows no redirects: a redirect would send the API key
// and the conversation to another host.
func HTTPClient(client *http.Client) *http.Client {
	if client != nil {
		return client
	}
	transport := http.DefaultTransport
	if shared, ok := transport.(*http.Transport); ok { // not replaced by the program
		own := shared.Clone()
		own.MaxIdleConnsPerHost = own.MaxIdleConns // a process makes many calls to few providers
		transport = own
	}
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// RedirectError returns the error of a redirect response, and nil for other responses. It is not retryable: a
// retry would be redirected as well.
func RedirectError(res *http.Response) *Error {
	if res.StatusCode < 300 || res.StatusCode > 399 {
		return nil
	}
	to := "to another address"
	if target, err := res.Location(); err == nil {
		to = fmt.Sprintf("to %s://%s", target.Scheme, target.Host) // the path may hold secrets
	}
	return &Error{
		Code: CodeInvalidResponse, StatusCode: res.StatusCode,
		Message: "the provider redirects " + to + "; a redirect would send the API key and the conversation there, so it is not " +
			"followed: set the base URL to the final address",
	}
}
