// What programs use of the package js-md5, which Debian does not have.
'use strict';
module.exports = (text) => require('crypto').createHash('md5').update(text).digest('hex');
