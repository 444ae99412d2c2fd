// SPDX-License-Identifier: Apache-2.0

package contact_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/meshcni/meshcni/examples/internal/contact"
)

// fixture is a contact over a transport with prepared answers.
type fixture struct {
	*contact.Contact
	ahead   time.Duration
	changes []string
}

func newFixture() *fixture {
	f, begin := &fixture{}, time.Now()
	f.Contact = contact.New(contact.Options{
		Path: "/pods", Now: func() time.Time { return begin.Add(f.ahead) },
		OnChange: func(kind string, _ error) { f.changes = append(f.changes, kind) },
	})
	return f
}

// transport always gives the same answer.
type transport func() (*http.Response, error)

func (t transport) RoundTrip(*http.Request) (*http.Response, error) { return t() }

// ask sends a request through the transport, and reads the whole answer.
func (f *fixture) ask(t *testing.T, path string, answer transport) {
	t.Helper()
	request := httptest.NewRequest(http.MethodGet, path, nil)
	response, err := f.Wrap(answer).RoundTrip(request)
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, response.Body)
	if err := response.Body.Close(); err != nil {
		t.Error(err)
	}
}

func answer(status int, body io.Reader) transport {
	return func() (*http.Response, error) {
		return &http.Response{StatusCode: status, Status: fmt.Sprint(status), Body: io.NopCloser(body)}, nil
	}
}

func text(s string) io.Reader { return strings.NewReader(s) }

func failing(err error) transport {
	return func() (*http.Response, error) { return nil, err }
}

func TestKinds(t *testing.T) {
	t.Parallel()
	event := `{"type":"ERROR","object":{"kind":"Status","code":%d}}` + "\n"
	for name, test := range map[string]struct {
		answer transport
		want   string
	}{
		"good":             {answer(200, text("[]")), ""},
		"refused":          {failing(&net.OpError{Err: syscall.ECONNREFUSED}), contact.Refused},
		"dial too long":    {failing(&net.OpError{Err: context.DeadlineExceeded}), contact.Timeout},
		"no such name":     {failing(&net.DNSError{IsNotFound: true}), contact.Name},
		"reset":            {failing(&net.OpError{Err: syscall.ECONNRESET}), contact.Other},
		"given up":         {failing(context.Canceled), ""},
		"401":              {answer(401, text("")), contact.Unauthorized},
		"403":              {answer(403, text("")), contact.Forbidden},
		"404":              {answer(404, text("")), contact.Other},
		"429":              {answer(429, text("")), contact.TooMany},
		"500":              {answer(500, text("")), contact.ServerError},
		"504":              {answer(504, text("")), contact.ServerError},
		"a watch breaks":   {answer(200, io.MultiReader(text("{"), iotest.ErrReader(io.ErrUnexpectedEOF))), contact.Other},
		"a watch fails":    {answer(200, text(fmt.Sprintf(event, 500))), contact.ServerError},
		"a watch too old":  {answer(200, text(fmt.Sprintf(event, 410))), ""},
		"a watch timeouts": {answer(200, iotest.ErrReader(context.DeadlineExceeded)), contact.Timeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture()
			f.ask(t, "/api/v1/pods?watch=true", test.answer)
			if got := f.Status(); got.Failure != test.want || got.Failures != len(f.changes) || (f.Err() == nil) != (test.want == "") {
				t.Errorf("got %+v, %v; told of %q", got, f.Err(), f.changes)
			}
			if test.want != "" && !slices.Contains(contact.Kinds(), test.want) {
				t.Errorf("%s isn't among the kinds", test.want)
			}
		})
	}
}

// The API server's reason is reported, and the client can still read it.
func TestRefusalIsTold(t *testing.T) {
	t.Parallel()
	f := newFixture()
	const said = `{"kind":"Status","code":403,"message":"pods is forbidden: User \"mesh\" cannot list resource \"pods\""}`
	response, err := f.Wrap(answer(403, text(said))).RoundTrip(httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	read, err := io.ReadAll(response.Body)
	if err != nil || string(read) != said {
		t.Errorf("the client reads %q, %v", read, err)
	}
	if got := f.Err(); got == nil || !strings.Contains(got.Error(), `pods is forbidden: User "mesh"`) {
		t.Errorf("got %v", got)
	}
}

// An API server before 1.34 does not stream lists by default, which is no failure.
func TestNoStreamedListsAreNoFailure(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.ask(t, "/api/v1/pods?watch=true&sendInitialEvents=true", answer(422, text("{}")))
	if f.Err() != nil || len(f.changes) > 0 {
		t.Errorf("%v, told of %q", f.Err(), f.changes)
	}
	f.ask(t, "/api/v1/pods", answer(422, text("{}")))
	if f.Err() == nil {
		t.Error("422 for a list is no failure")
	}
}

// TestCertificates uses a real handshake.
func TestCertificates(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	f := newFixture()
	client := http.Client{Transport: f.Wrap(&http.Transport{})}
	if _, err := client.Get(server.URL + "/pods"); err == nil || f.Status().Failure != contact.Certificate { //nolint:bodyclose // there is no response
		t.Errorf("got %+v, %v", f.Status(), err)
	}
}

func TestChangesAreToldOnce(t *testing.T) {
	t.Parallel()
	f := newFixture()
	refused, good := failing(syscall.ECONNREFUSED), answer(200, text("[]"))
	for range 3 {
		f.ask(t, "/pods", refused)
	}
	f.ask(t, "/events", good) // about something else than pods
	f.ahead = time.Minute
	if got := f.Status(); got.Failures != 3 || got.Age != 60 || !errors.Is(f.Err(), syscall.ECONNREFUSED) {
		t.Errorf("got %+v", got)
	}
	f.ask(t, "/pods", failing(&net.DNSError{}))
	f.ask(t, "/pods", good)
	f.ask(t, "/pods", answer(200, text("[]")))
	if got := f.Status(); got.Failures != 0 || got.Age != 0 {
		t.Errorf("got %+v", got)
	}
	if want := []string{contact.Refused, contact.Name, ""}; !slices.Equal(f.changes, want) {
		t.Errorf("told of %q, want %q", f.changes, want)
	}
}

func ExampleContact_Wrap() {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	c := contact.New(contact.Options{
		Path: "/api/v1/pods", Now: time.Now, OnChange: func(kind string, _ error) { fmt.Println("the API server:", kind) },
	})
	client := http.Client{Transport: c.Wrap(http.DefaultTransport)}
	for range 2 {
		_, _ = client.Get(server.URL + "/api/v1/pods") //nolint:bodyclose // there is no response
	}
	fmt.Println(c.Status().Failure, c.Status().Failures)
	// Output:
	// the API server: refused
	// refused 2
}
