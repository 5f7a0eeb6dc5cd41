package agent

import "errors"

// PublicError gives the error of a tool another text for users. The model receives the text of err,
// and browsers and other clients receive public. Use it for errors with internals, for example the
// response of another service.
func PublicError(err error, public string) error { return publicError{err, public} }

// PublicText returns the text of an error for users: the text of PublicError, or "" if users see the error itself.
func PublicText(err error) string {
	if p, ok := errors.AsType[publicError](err); ok {
		return p.public
	}
	return ""
}

type publicError struct {
	error
	public string
}

func (e publicError) Unwrap() error { return e.error }
