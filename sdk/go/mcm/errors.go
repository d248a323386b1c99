package mcm

import (
	"errors"
	"regexp"
	"strings"

	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/codes"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/status"

	"ostler.dev/sdk/go/driver"
)

// marker begins the text of every error that has a code of machine-controller-manager.
const marker = "machine codes error: code = ["

// requestID is how libraries of clouds write the id of a request. It is another one each time, and the text of an error
// stays in the Machine.
var requestID = regexp.MustCompile(`(?i),? ?\brequest[ -]?id[:=] ?"?([0-9a-z-]+)"?`)

// usedUp is what a cloud says of a quota that does not suffice. OpenStack does so with the HTTP status of a refusal (403),
// which its provider takes for one.
var usedUp = regexp.MustCompile(`(?i)\bquota\b.*\bexceeded\b|\bexceed.*\bquota\b`)

// tooFast is what a cloud says of a limit for the rate of calls, which is a quota to some: no machine is one too many.
var tooFast = regexp.MustCompile(`(?i)\brate ?(limit|exceeded)|\brequest ?limit ?exceeded|\bthrottl|\btoo many requests\b|\b(queries|requests|calls) per \w*(second|minute|hour|day)`)

// statusOf is the status in an error of a provider: the type, wherever it is wrapped, or its text, which a provider with
// another copy of the package makes. nil: the provider says no code.
func statusOf(err error) *status.Status {
	var found *status.Status
	if errors.As(err, &found) {
		return found
	}
	if err != nil && strings.Contains(err.Error(), marker) {
		if found, ok := status.FromError(err); ok {
			return found
		}
	}
	return nil
}

// codeOf is the code of an error: OK of nil, Unknown of one that says none. A code of gRPC or of a cloud's library is
// none: NotFound of a project is not NotFound of an instance.
func codeOf(err error) codes.Code {
	var ours *driver.Error
	switch found := statusOf(err); {
	case err == nil:
		return codes.OK
	case errors.As(err, &ours):
		return codes.Code(ours.Detail.Code)
	case found == nil:
		return codes.Unknown
	default:
		return found.Code()
	}
}

// failure is an error of a provider in terms of the contract. The numbers of both lists of codes are the same.
func failure(err error, left driver.Certainty, state string) error {
	var ours *driver.Error
	if errors.As(err, &ours) {
		return ours.Leaving(left)
	}
	code, message := codeOf(err), err.Error()
	if found := statusOf(err); found != nil {
		message = found.Message()
	}
	if code == codes.OK { // an error all the same
		code = codes.Unknown
	}
	said := code.String()
	switch {
	case code == codes.Unimplemented:
		left = driver.NotApplied
	case code == codes.PermissionDenied && usedUp.MatchString(message):
		code = codes.ResourceExhausted
	}
	reason := "PROVIDER_ERROR"
	if code == codes.ResourceExhausted && tooFast.MatchString(message) {
		reason = "THROTTLED"
	}
	id := ""
	if found := requestID.FindStringSubmatch(message); found != nil {
		message, id = requestID.ReplaceAllString(message, ""), found[1]
	}
	failed := driver.Fail(driver.Code(code), reason, "%s", message).Leaving(left)
	failed.Detail.ProviderCode, failed.Detail.ProviderRequestId = said, id
	failed.Detail.Checkpoint = state
	return failed
}
