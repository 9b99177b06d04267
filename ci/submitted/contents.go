package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
)

// What a submission may have at most. The report of both states of the gate on one version has some 1,900 files of 34 MB, of
// which none has more than 2.2 MB.
const (
	maxFiles     = 5000
	maxFileSize  = 5 << 20
	maxTotalSize = 64 << 20
	// maxUnpacked is what a compressed file may become.
	maxUnpacked = 64 << 20
)

// checkContents wants ordinary files that are not too large and have no secrets, and in the bundle no file besides those of
// the report.
func checkContents(folder string) error {
	files, total := 0, int64(0)
	isOfReport, err := filesOfReport(filepath.Join(folder, bundleFolder))
	if err != nil {
		return err
	}
	return filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return formErrorf("%v", err)
		}
		if d.IsDir() {
			return nil
		}
		name, _ := filepath.Rel(folder, path)
		name = filepath.ToSlash(name)
		info, err := d.Info()
		if err != nil {
			return formErrorf("%v", err)
		}
		files, total = files+1, total+info.Size()
		relative, isInBundle := strings.CutPrefix(name, bundleFolder+"/")
		switch {
		case !d.Type().IsRegular():
			return formErrorf("%s is not an ordinary file", name)
		case isInBundle && !isOfReport(relative):
			return formErrorf("%s is not a file of the report (expected what --report-dir wrote, and nothing else)", name)
		case info.Size() > maxFileSize:
			return formErrorf("%s has %d bytes (at most %d: submit a report with fewer cases)", name, info.Size(), maxFileSize)
		case files > maxFiles, total > maxTotalSize:
			return formErrorf("it has more than %d files or %d bytes: submit a report with fewer cases", maxFiles, maxTotalSize)
		}
		return checkSecrets(path, name)
	})
}

// filesOfReport returns a function that reports whether a path is that of a file of the report in a folder.
func filesOfReport(folder string) (func(name string) bool, error) {
	marker, err := os.ReadFile(filepath.Join(folder, reports.ReportFile))
	if err != nil {
		return nil, formErrorf("%v (expected what --report-dir wrote, unchanged)", err)
	}
	listed := sets.New(reports.JudgedFolder.ListedIn(os.DirFS(folder), marker)...)
	return listed.Insert(reports.ReportFile).Has, nil
}

// checkSecrets refuses a file with anything that authzconf itself would not write into a report.
func checkSecrets(path, name string) error {
	text, err := readUnpacked(path)
	if err != nil {
		return formErrorf("%s: %v", name, err)
	}
	clean := secretField.ReplaceAllString(record.Redact(text), "")
	if clean != text {
		return formErrorf("%s:%d: this looks like a secret: %s", name, firstChangedLine(text, clean), takeBack)
	}
	if strings.HasSuffix(strings.TrimSuffix(name, ".gz"), ".json") && hasSecretFields(text) {
		return formErrorf("%s: a field of it looks like a secret: %s", name, takeBack)
	}
	return nil
}

// takeBack is what to do about a secret: who has read the pull request knows it.
const takeBack = "take it back where it is valid, and submit a report without it"

// secretField fits a line of YAML, such as one of a kubeconfig in a README, that holds a secret and not a placeholder.
var secretField = regexp.MustCompile(`(?mi)^[ \t-]*(token|password|client-key-data|secret): *["']?[A-Za-z0-9+/=._-]{16,}`)

// hasSecretFields reports whether a JSON value has fields that authzconf would not write into a report, such as the data of a
// Secret. What is no JSON has none: authzconf verify refuses it.
func hasSecretFields(text string) bool {
	if record.Harmless([]byte(text)) {
		return false
	}
	var value any
	if json.Unmarshal([]byte(text), &value) != nil {
		return false
	}
	clean, err := record.RedactedCopy(&value, "")
	return err != nil || !reflect.DeepEqual(*clean, value)
}

// readUnpacked returns the text of a file, unpacked if it is compressed.
func readUnpacked(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil || filepath.Ext(path) != ".gz" {
		return string(data), err
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(unpacked, maxUnpacked+1))
	if len(text) > maxUnpacked {
		return "", fmt.Errorf("it has more than %d bytes when it is unpacked", maxUnpacked)
	}
	return string(text), err
}

// firstChangedLine returns the number, from 1, of the first line that differs.
func firstChangedLine(text, changed string) int {
	was, is := strings.Split(text, "\n"), strings.Split(changed, "\n")
	for i := range min(len(was), len(is)) {
		if was[i] != is[i] {
			return i + 1
		}
	}
	return min(len(was), len(is))
}
